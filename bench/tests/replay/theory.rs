//! One class, first come, first served: the waiting times of queueing theory.
//!
//! Seeds are fixed, so nothing here is left to chance; the bounds are what a right simulator keeps for nearly every seed.

use tollgate::policy::{Profile, QueuePolicy};
use tollgate_bench::replay::{Amount, Event, Poisson, simulate};

use super::{one_by_one, setup};

/// Requests of a run.
const REQUESTS: u64 = 400_000;
/// The first ones find an empty system, which is not what theory is about.
const WARM_UP: usize = 20_000;
const BATCHES: usize = 38;
/// Mean service time is a second: a million tokens at a token per microsecond.
const SERVICE: f64 = 1e6;

/// Waiting times in the order of arrival \[s\].
fn waits(workers: u32, rate: f64, input: Amount, seed: u64) -> Vec<f64> {
    let load = Poisson { requests: REQUESTS, rate, input, output: Amount::Fixed(1), classes: 0 };
    let setup = setup(Profile::synthetic(None, QueuePolicy::Fcfs), one_by_one(workers));
    let (mut arrived, mut waited) = (Vec::new(), vec![f64::NAN; REQUESTS as usize]);
    let outcome = simulate(&setup, load.requests(seed).map(Ok), |now, event| match event {
        Event::Arrived(..) => arrived.push(now),
        Event::Dispatched(place, _) => waited[place as usize] = (now - arrived[place as usize]) as f64 / 1e9,
        _ => {}
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.all.completed, outcome.unconserved), (REQUESTS, 0));
    waited.split_off(WARM_UP)
}

/// Mean of a number, and the standard error of this mean from means of batches, which are far less correlated than
/// neighbours are (Law, "Simulation Modeling and Analysis", chapter 9).
fn mean(values: &[f64]) -> (f64, f64) {
    let batches = values.chunks_exact(values.len() / BATCHES);
    let means: Vec<f64> = batches.map(|batch| batch.iter().sum::<f64>() / batch.len() as f64).collect();
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
    (mean, (variance / means.len() as f64).sqrt())
}

#[track_caller]
fn assert_mean(what: &str, values: impl Iterator<Item = f64>, theory: f64) {
    let (mean, error) = mean(&values.collect::<Vec<_>>());
    // The t distribution with 37 degrees of freedom exceeds 3.6 once in a thousand.
    assert!((mean - theory).abs() < 3.6 * error, "{what}: {mean} ± {error}, theory says {theory}");
    assert!(error < 0.05 * theory, "{what}: {mean} ± {error} says nothing");
}

/// Probability that a request waits at all, with `c` servers and `a` Erlang of traffic (Erlang 1917).
fn erlang_c(c: u32, a: f64) -> f64 {
    let blocked = (1..=c).fold(1.0, |b, k| a * b / (f64::from(k) + a * b));
    let c = f64::from(c);
    c * blocked / (c - a * (1.0 - blocked))
}

#[test]
fn m_m_1() {
    for (rho, seed) in [(0.5, 1), (0.8, 2)] {
        let waits = waits(1, rho, Amount::Exponential(SERVICE), seed);
        assert_mean("mean wait", waits.iter().copied(), rho / (1.0 - rho));
        // P(W > t) = ρ e^-(1-ρ)t: whether anybody waits, and the 90th percentile.
        let beyond = |t: f64| waits.iter().map(move |w| f64::from(*w > t));
        assert_mean("waits at all", beyond(0.0), rho);
        assert_mean("tail", beyond((rho / 0.1).ln() / (1.0 - rho)), 0.1);
    }
}

#[test]
fn m_d_1() {
    // Pollaczek and Khinchine: half of the wait of M/M/1.
    for (rho, seed) in [(0.5, 3), (0.8, 4)] {
        let waits = waits(1, rho, Amount::Fixed(SERVICE as u64), seed);
        assert_mean("mean wait", waits.iter().copied(), rho / (2.0 * (1.0 - rho)));
    }
}

#[test]
fn m_m_c() {
    for (c, rho, seed) in [(4, 0.8, 5), (16, 0.9, 6)] {
        let a = f64::from(c) * rho;
        let waits = waits(c, a, Amount::Exponential(SERVICE), seed);
        let waits_at_all = erlang_c(c, a);
        assert_mean("waits at all", waits.iter().map(|w| f64::from(*w > 0.0)), waits_at_all);
        assert_mean("mean wait", waits.iter().copied(), waits_at_all / (f64::from(c) - a));
    }
}

#[test]
fn the_formula_of_erlang_has_its_known_values() {
    assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-12);
    assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-12);
}
