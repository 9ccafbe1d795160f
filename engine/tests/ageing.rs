//! Shortest first, but not for ever: the order of a class whose requests age, and the bound that it keeps.

mod common;
#[path = "oracle/rng.rs"]
mod rng;

use common::*;
use rng::Rng;
use tollgate::policy::{ClassSpec, QueuePolicy};
use tollgate::{Request, Scheduler};

const SECOND: u64 = 1_000_000_000;

fn aged(tokens_per_second: f64) -> ClassSpec {
    ClassSpec { order: QueuePolicy::AgedWspt, aging_tokens_per_second: Some(tokens_per_second), ..class(1) }
}

fn jump(seconds: f64, request: Request) -> Request {
    Request { priority_jump: seconds, ..request }
}

/// Positions in the order of dispatch, of a class that ages by 10 tokens a second.
fn in_order(requests: Vec<(u64, Request)>) -> Vec<usize> {
    let mut s = scheduler(vec![aged(10.0)], workers(1));
    for (i, (arrival, request)) in requests.into_iter().enumerate() {
        put(&mut s, A, at(arrival, request), i);
    }
    order(&mut s)
}

/// Cost plus rate times arrival, smaller first.
#[test]
fn a_second_of_waiting_is_worth_the_rate() {
    assert_eq!(in_order(vec![(0, tokens(30)), (SECOND, tokens(21)), (SECOND, tokens(19))]), [2, 0, 1]);
}

/// A jump is an earlier arrival, and a negative one is zero.
#[test]
fn a_jump_counts_as_an_earlier_arrival() {
    let requests = vec![
        (4 * SECOND, tokens(1)),
        (4 * SECOND, jump(2.5, tokens(25))),
        (4 * SECOND, jump(2.3, tokens(25))),
        (4 * SECOND, jump(1e300, tokens(9999))),
        (4 * SECOND, jump(-9.0, tokens(1))),
    ];
    assert_eq!(in_order(requests), [3, 1, 0, 4, 2]);
}

/// Equal is equal, whatever it is made of: the sequence decides.
#[test]
fn equal_keys_go_by_sequence() {
    // 20 tokens at the first second are worth as much as 30 at the start, and 10 with a second's jump.
    let [a, b, c] = [(SECOND, tokens(20)), (0, tokens(30)), (SECOND, jump(1.0, tokens(30)))];
    assert_eq!(in_order(vec![a.clone(), b.clone(), c.clone()]), [0, 1, 2]);
    assert_eq!(in_order(vec![c, b, a]), [0, 1, 2]);
    // Nothing at all.
    assert_eq!(in_order(vec![(0, jump(2.0, tokens(20))), (0, jump(1.0, tokens(10)))]), [0, 1]);
    assert_eq!(in_order(vec![(0, jump(1.0, tokens(10))), (0, jump(2.0, tokens(20)))]), [0, 1]);
}

/// Strict tiers and deadlines come first.
#[test]
fn age_is_nothing_to_strict_tiers_and_deadlines() {
    let urgent = Request { strict_priority: 1, ..tokens(1000) };
    let due = Request { deadline: Some(std::time::Duration::from_secs(99)), ..tokens(1000) };
    assert_eq!(in_order(vec![(0, tokens(1)), (SECOND, due), (2 * SECOND, urgent)]), [2, 1, 0]);
}

/// A request of cost c is never passed by one that arrived more than `c / rate` seconds after it.
///
/// The key is a float. Each of its four operations errs by 2⁻⁵³ of its value at most, so two keys are apart by their
/// true distance within 2⁻⁵⁰ of the larger one: as time, within 2⁻⁵⁰ of `clock + c / rate`, a nanosecond after 13
/// days. The other half of the slack is for the arithmetic of this test.
#[test]
fn a_request_is_never_passed_by_one_that_arrived_later_than_its_bound() {
    let (mut passed, mut closest) = (0u64, 0f64);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let rate = rng.pick(&[0.37, 10.0, 4096.0, 1e9 / 3.0]);
        let most = rng.pick(&[3, 50, 10_000, 1 << 40]);
        // Bounds of some arrivals.
        let step = (most as f64 / rate * 1e9 / 20.0).min(2f64.powi(48)) as u64 + 1;
        let mut clock = rng.pick(&[0, 1, 86_400 * SECOND, 1 << 59]);
        let mut s: Scheduler<u64> = scheduler(vec![aged(rate)], workers(1));
        // Arrival and cost.
        let mut waiting: Vec<(u64, u64, u64)> = Vec::new();
        for id in 0..1000 {
            if rng.percent(55) {
                clock += rng.within(0..=step);
                let cost = rng.pick(&[1, most, rng.clone().within(1..=most)]);
                put(&mut s, A, at(clock, tokens(cost)), id);
                waiting.push((id, clock, cost));
            } else if let Some(picked) = s.next_request() {
                let place = waiting.iter().position(|w| w.0 == picked.payload).expect("it waits");
                let (_, arrival, _) = waiting.remove(place);
                for &(_, earlier, cost) in waiting.iter().filter(|w| w.1 < arrival) {
                    let bound = cost as f64 / rate * 1e9;
                    let slack = (arrival as f64 + bound) * 2f64.powi(-49);
                    let after = (arrival - earlier) as f64;
                    assert!(after <= bound + slack, "seed {seed}: cost {cost} was passed {after} ns later");
                    passed += 1;
                    closest = closest.max(after / bound);
                }
            }
        }
    }
    assert!(passed > 10_000 && closest > 0.95, "{passed} times, {closest} of the bound");
}

/// One small request each 10 ms, and the worker takes one each 10 ms: when is the large one served \[ns\]?
fn when_the_large_one_is_served(class: ClassSpec, small_ones: u64) -> Option<u64> {
    let mut s = scheduler(vec![class], workers(1));
    put(&mut s, A, at(0, tokens(10_000)), "large");
    (0..=small_ones).map(|i| i * SECOND / 100).find(|&clock| {
        put(&mut s, A, at(clock, tokens(10)), "small");
        s.next_request().expect("something waits").payload == "large"
    })
}

/// Cheapest first alone starves a large request for as long as small ones come.
#[test]
fn wspt_never_serves_a_large_request_while_small_ones_come() {
    let wspt = ClassSpec { order: QueuePolicy::Wspt, ..class(1) };
    assert_eq!(when_the_large_one_is_served(wspt, 100_000), None);
}

/// 10,000 tokens at 1,000 a second: no small request that comes after ten seconds goes first.
#[test]
fn ageing_serves_a_large_request_within_its_bound_whatever_comes() {
    let served = when_the_large_one_is_served(aged(1000.0), 100_000).expect("in the end");
    assert!((9 * SECOND..=10 * SECOND).contains(&served), "{served}");
}
