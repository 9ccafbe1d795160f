//! Every example runs and does what it says.

#![allow(
    dead_code,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    reason = "examples are programs"
)]

#[path = "../examples/custom_selector.rs"]
mod custom_selector;
#[path = "../examples/simulate.rs"]
mod simulate;
#[path = "../examples/threads.rs"]
mod threads;
#[path = "../examples/tokio_task.rs"]
mod tokio_task;
#[path = "../examples/tower_layer.rs"]
mod tower_layer;

#[test]
fn threads_are_all_served() {
    let served = threads::run().unwrap();
    assert_eq!(served.into_iter().collect::<Vec<_>>(), [("premium", 20_000), ("regular", 20_000)]);
}

#[test]
fn tasks_are_served_leave_or_are_refused() {
    use tokio_task::Outcome::{Left, Refused, Served};
    assert_eq!(tokio_task::run().unwrap(), [Served(7), Served(7), Served(7), Left, Refused(503)]);
}

#[test]
fn the_layer_answers_for_the_service() {
    let answers = tower_layer::run().unwrap();
    let expected = [
        (200, "3808 tokens on endpoint 3/0"),
        (400, "x-prompt-tokens: must be a number"),
        (503, "closed: engine closed"),
    ];
    assert_eq!(answers, expected.map(|(status, body)| (status, body.to_owned())));
}

#[test]
fn the_selector_weighs_what_is_cached() {
    assert_eq!(custom_selector::run().unwrap(), [1, 2]);
}

#[test]
fn the_simulation_serves_by_quanta() {
    let [premium, regular] = &simulate::run().unwrap()[..] else { panic!("two classes") };
    // Each offers 800 requests a minute, and the worker can serve 1,200. That is less than the four fifths which premium
    // has a claim to: it is served at once, and regular gets the rest.
    assert_eq!(premium.served + regular.served, 1_200);
    assert!(premium.served >= 799 && premium.mean_wait < 100, "{premium:?}");
    assert!(regular.mean_wait > 10_000, "{regular:?}");
}

#[test]
fn every_example_is_short_and_in_this_list() {
    let here = include_str!("examples.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(here.contains(&format!("../examples/{name}")), "{name} is not run");
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines < 80, "{name} has {lines} lines");
        }
    }
}
