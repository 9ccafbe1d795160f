//! A made-up load: Poisson arrivals, for sizes that no public trace has.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp};

use super::Arrival;

/// `poisson:requests=N,rate=R,…`: requests at random, `rate` of them per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Poisson {
    /// How many.
    pub requests: u64,
    /// Mean arrivals per second.
    pub rate: f64,
    /// Prompts.
    pub input: Amount,
    /// Answers.
    pub output: Amount,
    /// Ask for the classes `c0`, `c1`, … at random, all alike; 0: for none.
    pub classes: u32,
}

/// A number of tokens: always the same, or exponential with this mean (at least 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// `1000`
    Fixed(u64),
    /// `exp1000`
    Exponential(f64),
}

impl Amount {
    fn draw(self, rng: &mut ChaCha8Rng) -> u64 {
        match self {
            Self::Fixed(n) => n,
            Self::Exponential(mean) => {
                let exp = Exp::new(1.0 / mean).expect("parsed: the mean is finite and above 0");
                (exp.sample(rng).round() as u64).max(1)
            }
        }
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither a number of tokens nor exp and a mean, as in exp1000");
        match text.strip_prefix("exp") {
            Some(mean) => match mean.parse::<f64>() {
                Ok(mean) if (1e-3..=1e9).contains(&mean) => Ok(Self::Exponential(mean)),
                _ => Err(wrong()),
            },
            None => match text.parse() {
                Ok(n) if n <= 1_000_000_000 => Ok(Self::Fixed(n)),
                _ => Err(wrong()),
            },
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(n) => n.fmt(f),
            Self::Exponential(mean) => write!(f, "exp{mean}"),
        }
    }
}

impl FromStr for Poisson {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut load = Self {
            requests: 0,
            rate: 0.0,
            input: Amount::Fixed(1_000),
            output: Amount::Fixed(100),
            classes: 0,
        };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is no NAME=VALUE"))?;
            let wrong = |what: &str| format!("{name}: {value:?} is {what}");
            match name {
                "requests" => load.requests = value.parse().map_err(|_| wrong("no count"))?,
                "rate" => load.rate = value.parse().map_err(|_| wrong("no number per second"))?,
                "input" => load.input = value.parse().map_err(|e| format!("input: {e}"))?,
                "output" => load.output = value.parse().map_err(|e| format!("output: {e}"))?,
                "classes" => load.classes = value.parse().map_err(|_| wrong("no count"))?,
                _ => return Err(format!("{name}: not one of requests, rate, input, output, classes")),
            }
        }
        if load.requests == 0 {
            return Err("requests: must be given, and greater than 0".into());
        }
        if !(1e-9..=1e9).contains(&load.rate) {
            return Err("rate: must be given, in requests per second".into());
        }
        Ok(load)
    }
}

impl fmt::Display for Poisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, rate, input, output, classes } = self;
        write!(f, "poisson:requests={requests},rate={rate},input={input},output={output},classes={classes}")
    }
}

impl Poisson {
    /// The requests; the same for the same seed.
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = Arrival> + Send + use<> {
        let load = self.clone();
        let gap = Exp::new(load.rate).expect("parsed: the rate is finite and above 0");
        let names: Vec<Arc<str>> = (0..load.classes).map(|i| format!("c{i}").into()).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut now = 0.0;
        (0..load.requests).map(move |_| {
            let at = (now * 1e9) as u64;
            now += gap.sample(&mut rng);
            let class = (!names.is_empty()).then(|| names[rng.random_range(0..names.len())].clone());
            let (input, output) = (load.input.draw(&mut rng), load.output.draw(&mut rng));
            Arrival { at, input, output, class, ..Arrival::default() }
        })
    }
}
