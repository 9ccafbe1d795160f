//! What requests cost, and when they come.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::idle::Idle;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, LogNormal, Uniform};
use tollgate::MAX_BOOKED_TOKENS;

/// Random numbers of one thread.
pub(super) type Random = ChaCha8Rng;

/// The random numbers of thread number `thread`: others for every thread, the same for every run with this seed.
pub(super) fn random(seed: u64, thread: u64) -> Random {
    let mut random = Random::seed_from_u64(seed);
    random.set_stream(thread);
    random
}

/// How costs are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cost {
    /// All the same \[tokens\].
    Fixed(u64),
    /// Every cost from the first to the last with the same probability \[tokens\].
    Uniform(u64, u64),
    /// The logarithm is normal: median \[tokens\] and standard deviation of the natural logarithm.
    LogNormal(u64, f64),
}

impl Cost {
    /// The cost of one request \[tokens\].
    pub(super) fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::Fixed(cost) => cost,
            Self::Uniform(low, high) => {
                Uniform::new_inclusive(low, high).expect("checked by `from_str`").sample(random)
            }
            Self::LogNormal(median, sigma) => {
                let draw = LogNormal::new((median as f64).ln(), sigma).expect("checked by `from_str`");
                // Too large for the type saturates.
                (draw.sample(random).round() as u64).clamp(1, MAX_BOOKED_TOKENS)
            }
        }
    }
}

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) =
            text.split_once(':').ok_or("not of the form fixed:N, uniform:A-B or lognormal:MEDIAN,SIGMA")?;
        let tokens = |text: &str| {
            let tokens = text.trim().parse().map_err(|_| format!("{text:?} is not a number of tokens"))?;
            if (1..=MAX_BOOKED_TOKENS).contains(&tokens) {
                Ok(tokens)
            } else {
                Err(format!("{tokens} is not in 1..={MAX_BOOKED_TOKENS}"))
            }
        };
        let pair = |by, form| rest.split_once(by).ok_or(format!("{rest:?} is not of the form {form}"));
        match kind {
            "fixed" => Ok(Self::Fixed(tokens(rest)?)),
            "uniform" => {
                let (low, high) = pair('-', "A-B")?;
                let (low, high) = (tokens(low)?, tokens(high)?);
                if low > high {
                    return Err(format!("{low} is above {high}"));
                }
                Ok(Self::Uniform(low, high))
            }
            "lognormal" => {
                let (median, sigma) = pair(',', "MEDIAN,SIGMA")?;
                let spread: f64 = sigma.trim().parse().map_err(|_| format!("{sigma:?} is not a number"))?;
                if !(0.0..=10.0).contains(&spread) {
                    return Err(format!("sigma {spread} is not in 0..=10"));
                }
                Ok(Self::LogNormal(tokens(median)?, spread))
            }
            other => Err(format!("{other:?} is none of fixed, uniform, lognormal")),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(cost) => write!(f, "fixed:{cost}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low}-{high}"),
            Self::LogNormal(median, sigma) => write!(f, "lognormal:{median},{sigma}"),
        }
    }
}

/// How arrivals are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Spread {
    /// Independent of each other: exponential gaps
    #[default]
    Poisson,
    /// All gaps equal
    Even,
}

/// The arrival times of one thread. They do not depend on anything that happens.
#[derive(Debug)]
pub(super) struct Arrivals {
    spread: Spread,
    /// Mean time between two arrivals \[ns\].
    gap: f64,
    /// The next arrival \[ns since the start of the run\].
    next: f64,
}

impl Arrivals {
    /// Thread `thread` of `threads`, which have `rate` arrivals per second together.
    pub(super) fn new(spread: Spread, rate: f64, thread: u64, threads: u64) -> Self {
        let gap = threads as f64 * 1e9 / rate;
        // Even threads take turns.
        Self { spread, gap, next: gap * thread as f64 / threads as f64 }
    }

    /// When the next request arrives \[ns since the start of the run\].
    pub(super) fn next(&self) -> u64 {
        self.next as u64
    }

    /// Goes on to the one after it.
    pub(super) fn advance(&mut self, random: &mut Random) {
        self.next += match self.spread {
            Spread::Even => self.gap,
            Spread::Poisson => self.gap * Distribution::<f64>::sample(&Exp1, random),
        };
    }
}

/// A run, as the options say.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) threads: u64,
    /// Quantum of each class \[tokens\].
    pub(super) quanta: Vec<u64>,
    pub(super) order: Order,
    pub(super) workers: u64,
    /// Permits that a worker may have out.
    pub(super) slots: u32,
    /// How long a permit is held.
    pub(super) service: Duration,
    pub(super) cost: Cost,
    /// Share of the requests that are cancelled.
    pub(super) cancel: f64,
    /// Share of the requests that have a deadline.
    pub(super) deadline: f64,
    /// That deadline, from arrival.
    pub(super) within: Duration,
    /// Worker snapshots per second.
    pub(super) publish: f64,
    /// Arrivals per second; `None` is closed loop.
    pub(super) rate: Option<f64>,
    pub(super) spread: Spread,
    /// Callers of each thread.
    pub(super) seats: u32,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    pub(super) idle: Idle,
    pub(super) seed: u64,
}

/// Order inside a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Order {
    /// First come, first served
    #[default]
    Fcfs,
    /// Shortest first
    Wspt,
    /// Shortest first, at 1,000 tokens per second of waiting
    Aged,
}

impl Load {
    /// Callers of all threads.
    pub(super) fn callers(&self) -> u64 {
        self.threads * u64::from(self.seats)
    }

    /// The class of a caller, who sends all requests to the same one if the load is closed.
    pub(super) fn class_of(&self, thread: u64, seat: u32) -> usize {
        ((thread * u64::from(self.seats) + u64::from(seat)) % self.quanta.len() as u64) as usize
    }

    /// Whether every class has a request in its lanes at each decision, so that the shares follow the quanta.
    ///
    /// Of the fewest callers that a class has, all may hold permits, and each thread may be about to send the next
    /// request of one. The arbiter fills up each class before it dispatches as much as there are slots, as long as
    /// that is no more than it does in one turn.
    pub(super) fn saturates(&self) -> bool {
        let slots = self.workers.saturating_mul(self.slots.into());
        let fewest = self.callers() / self.quanta.len() as u64;
        self.rate.is_none()
            && self.cancel == 0.0
            && self.deadline == 0.0
            && slots < TURN
            && fewest > slots + self.threads
    }
}

/// Dispatches of one turn of the arbiter, before which it fills up each class.
const TURN: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_and_written_alike() {
        for text in ["fixed:512", "uniform:1-2048", "lognormal:512,1.5"] {
            assert_eq!(text.parse::<Cost>().unwrap().to_string(), text);
        }
        let wrong = [
            "512",
            "",
            "fixed",
            "fixed:",
            "fixed:0",
            "fixed:-1",
            "fixed:1e3",
            "uniform:5",
            "uniform:9-5",
            "uniform:0-5",
            "lognormal:5",
            "lognormal:5,-1",
            "lognormal:5,NaN",
            "lognormal:5,inf",
            "normal:5,1",
            "fixed:18446744073709551615",
        ];
        for text in wrong {
            assert!(text.parse::<Cost>().is_err(), "{text}");
        }
    }

    #[test]
    fn drawn_costs_are_where_they_should_be() {
        let mut random = random(1, 0);
        let mut draw = |text: &str| {
            let cost: Cost = text.parse().unwrap();
            let mut costs: Vec<_> = (0..10_001).map(|_| cost.draw(&mut random)).collect();
            costs.sort_unstable();
            (costs[0], costs[5_000], costs[10_000])
        };
        assert_eq!(draw("fixed:7"), (7, 7, 7));
        let (low, median, high) = draw("uniform:10-20");
        assert_eq!((low, median.abs_diff(15) <= 1, high), (10, true, 20));
        let (low, median, high) = draw("lognormal:1000,1");
        assert!(low >= 1 && median.abs_diff(1_000) < 60 && high > 10_000, "{low} {median} {high}");
        assert_eq!(draw("lognormal:1,0"), (1, 1, 1));
    }

    #[test]
    fn arrivals_have_the_rate_that_was_asked_for_and_even_threads_take_turns() {
        let mut random = random(1, 0);
        let mut even = Arrivals::new(Spread::Even, 1e6, 1, 4);
        let times: Vec<_> = (0..3).map(|_| (even.next(), even.advance(&mut random)).0).collect();
        assert_eq!(times, [1_000, 5_000, 9_000]);
        let mut poisson = Arrivals::new(Spread::Poisson, 1e6, 0, 4);
        (0..100_000).for_each(|_| poisson.advance(&mut random));
        assert!((poisson.next() as f64 / (100_000.0 * 4_000.0) - 1.0).abs() < 0.02);
    }

    #[test]
    fn each_thread_has_its_own_random_numbers() {
        let draws = |seed, thread| Cost::Uniform(1, 1 << 40).draw(&mut random(seed, thread));
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
        assert_ne!(draws(1, 0), draws(2, 0));
    }
}
