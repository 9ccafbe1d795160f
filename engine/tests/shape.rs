//! What a decision costs, in counted steps and not in time: independent of request size, quantum and the number of
//! workers, and within its bound in the number of classes.

use tollgate::policy::{ClassId, ClassSpec, PolicySpec, Profile};
use tollgate::{Request, Scheduler, Timestamp, Worker, WorkerSnapshot};

fn scheduler(classes: u32, quantum: u64, workers: u64) -> Scheduler<()> {
    let classes = (0..classes).map(|i| ClassSpec::explicit(format!("c{i}"), quantum)).collect();
    let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap();
    let mut scheduler = Scheduler::new(&profile);
    let workers = (0..workers).map(Worker::new).collect();
    scheduler.set_workers(WorkerSnapshot::new(1, workers).unwrap().into());
    scheduler
}

fn put(scheduler: &mut Scheduler<()>, class: u32, cost: u64) {
    let snapshot = Request::new(cost, 0).snapshot(Timestamp::ZERO).unwrap();
    scheduler.enqueue(ClassId(class), snapshot, ()).unwrap();
}

/// Mean steps of `decisions` decisions among `active` of `classes` classes, each of which always has requests.
fn steps(classes: u32, active: u32, quantum: u64, cost: u64, workers: u64) -> u64 {
    const DECISIONS: u64 = 500;
    let mut scheduler = scheduler(classes, quantum, workers);
    let stride = classes / active;
    for class in 0..active {
        for _ in 0..2 {
            put(&mut scheduler, class * stride, cost);
        }
    }
    let before = scheduler.ring_steps();
    for _ in 0..DECISIONS {
        let picked = scheduler.next_request().unwrap();
        put(&mut scheduler, picked.class.0, cost);
    }
    (scheduler.ring_steps() - before) / DECISIONS
}

#[test]
fn steps_per_decision_do_not_depend_on_request_size_or_quantum() {
    for classes in [10, 1000] {
        let usual = steps(classes, classes, 512, 512, 1);
        for (quantum, cost) in
            [(1, 1), (1, 1_000_000_000_000), (64, 1_000_000), (u64::MAX, u64::MAX), (1, u64::MAX - 1)]
        {
            let steps = steps(classes, classes, quantum, cost, 1);
            // Oversized heads cost the passes of bulk credit: a factor, whatever their size.
            assert!(
                steps <= 6 * usual.max(u64::from(classes.min(64))),
                "{quantum} and {cost}: {steps}, else {usual}"
            );
        }
    }
}

#[test]
fn steps_per_decision_do_not_depend_on_the_number_of_workers() {
    assert_eq!(steps(100, 100, 512, 700, 1), steps(100, 100, 512, 700, 10_000));
}

#[test]
fn ten_active_classes_of_ten_thousand_cost_about_what_ten_of_ten_cost() {
    let few = steps(10, 10, 512, 700, 1);
    let many = steps(10_000, 10, 512, 700, 1);
    assert!(many <= 2 * few, "{many} steps, {few} with ten classes");
}

#[test]
fn steps_per_decision_do_not_depend_on_the_number_of_classes() {
    let at = |classes| steps(classes, classes, 512, 700, 1);
    let (hundred, ten_thousand) = (at(100), at(10_000));
    assert!(ten_thousand <= hundred + 1, "{ten_thousand} steps among 10,000 classes, {hundred} among 100");
}
