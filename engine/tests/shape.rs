//! What a decision costs, in counted steps and not in time: independent of request size, quantum and the number of
//! workers, and within its bound in the number of classes. And what a load change costs, in lanes that are looked at.

use tollgate::policy::{ClassId, ClassSpec, PolicySpec, Profile};
use tollgate::{Booked, Booking, Pin, Request, Scheduler, Timestamp, Worker, WorkerId, WorkerSnapshot};

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

/// A scheduler in which every worker is busy and a request waits for it in every class.
fn saturated(classes: u32, workers: u64) -> (Scheduler<()>, Vec<Booking>) {
    let busy_above_0 = |i| {
        let mut class = ClassSpec::explicit(format!("c{i}"), 512);
        class.busy.threshold_tokens = Some(0);
        class
    };
    let classes: Vec<_> = (0..classes).map(busy_above_0).collect();
    let numbers = (0..classes.len() as u32).map(ClassId);
    let mut s = Scheduler::new(&Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap());
    s.set_workers(WorkerSnapshot::new(1, (0..workers).map(Worker::new).collect()).unwrap().into());
    let mut bookings = Vec::new();
    for worker in 0..workers {
        put_pinned(&mut s, ClassId(0), worker);
        bookings.push(s.dispatch().unwrap().outcome.unwrap());
        for class in numbers.clone() {
            // One stays behind, so that the lane does.
            put_pinned(&mut s, class, worker);
            put_pinned(&mut s, class, worker);
        }
    }
    (s, bookings)
}

fn put_pinned(scheduler: &mut Scheduler<()>, class: ClassId, worker: u64) {
    let pin = Some(Pin { worker: WorkerId(worker), rank: None });
    let snapshot = Request { pin, ..Request::new(512, 0) }.snapshot(Timestamp::ZERO).unwrap();
    scheduler.enqueue(class, snapshot, ()).unwrap();
}

/// Lanes that are looked at, and steps of the ring, when one worker is freed and booked again; the mean of some.
fn per_change(classes: u32, workers: u64) -> [u64; 2] {
    const CHANGES: usize = 200;
    let (mut s, mut bookings) = saturated(classes, workers);
    let before = [s.seen().lanes, s.ring_steps()];
    for i in 0..CHANGES {
        let at = i % bookings.len();
        s.release(bookings.swap_remove(at));
        let dispatched = s.dispatch().expect("its worker is free");
        assert!(s.dispatch().is_none(), "and busy again");
        let booking = dispatched.outcome.unwrap();
        put_pinned(&mut s, dispatched.request.class, booking.endpoint().worker.0);
        bookings.push(booking);
    }
    [s.seen().lanes - before[0], s.ring_steps() - before[1]].map(|n| n / CHANGES as u64)
}

#[test]
fn a_load_change_and_its_dispatch_look_at_as_many_classes_however_many_have_a_lane() {
    let [lanes, steps] = per_change(3, 2);
    // Its class is told that the worker is free, and then that it is busy.
    assert_eq!(lanes, 2);
    for (classes, workers) in [(64, 16), (1_000, 4), (64, 200)] {
        let [many_lanes, many_steps] = per_change(classes, workers);
        assert_eq!(many_lanes, lanes, "{classes} classes, {workers} workers");
        assert!(
            many_steps <= steps + 4,
            "{classes} classes, {workers} workers: {many_steps} and {steps} steps"
        );
    }
}

#[test]
fn a_worker_that_is_busy_again_before_anybody_asks_tells_nobody() {
    let (mut s, _bookings) = saturated(64, 4);
    let (index, _) = s.endpoints().next().unwrap();
    s.set_external(index, 1);
    assert!(s.dispatch().is_none());
    let before = s.seen().lanes;
    let booked = s.booked(index);
    for _ in 0..10 {
        s.set_external(index, 0);
        s.set_booked(index, Booked::default());
        s.set_booked(index, booked);
        s.set_external(index, 1);
    }
    assert!(s.dispatch().is_none());
    assert_eq!(s.seen().lanes, before);
}

/// The bound of a change when many others have not been asked for: the lanes that wait for its own endpoint.
#[test]
fn a_load_change_tells_no_more_classes_at_once_than_have_a_lane_for_its_worker() {
    let (mut s, _bookings) = saturated(10, 300);
    let indices: Vec<_> = s.endpoints().map(|(index, _)| index).collect();
    let (mut most, mut total) = (0, 0);
    for &index in &indices {
        let before = s.seen().lanes;
        s.set_booked(index, Booked::default());
        let told = s.seen().lanes - before;
        (most, total) = (most.max(told), total + told);
    }
    assert_eq!(most, 10);
    assert!(total < 10 * indices.len() as u64, "some are left for later");
}
