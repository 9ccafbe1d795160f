//! The shares of the classes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::policy::ClassId;
use tollgate::{
    Candidates, EndpointIndex, Engine, EngineSnapshot, Request, Selector, Worker, WorkerSnapshot,
};

use crate::common::{self, A, B, class, fill, gated, now, put, tokens};
use crate::threaded::{self, each_answer, next_answer, profile, until};

/// Tells the threads of a test to end, also if it fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// More comes than the arbiter can take, which has hundreds of workers at hand and takes its time over each request.
#[test]
fn all_classes_waited_alike_when_the_arbiter_was_the_bottleneck() {
    const WINDOW: usize = 2000;
    struct Slow;
    impl Selector for Slow {
        fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
            let until = Instant::now() + Duration::from_micros(15);
            while Instant::now() < until {}
            candidates.least_loaded()
        }
    }
    let engine =
        Engine::builder(profile(vec![threaded::class("premium", 4096), threaded::class("regular", 1024)]))
            .workers(WorkerSnapshot::new(1, (0..300).map(Worker::new).collect()).unwrap())
            .selector(Slow)
            .start()
            .unwrap();
    let done = AtomicBool::new(false);
    let (first, last) = thread::scope(|scope| {
        let _over = Over(&done);
        for t in 0..4 {
            let (engine, done) = (engine.clone(), &done);
            scope.spawn(move || {
                let name: std::sync::Arc<str> = ["premium", "regular"][t % 2].into();
                let admit = || ((), engine.admit(tokens(512).with_class(name.clone())).unwrap());
                // In the order of arrival, which is that of the answers.
                let mut window: std::collections::VecDeque<_> = (0..WINDOW).map(|_| admit().1).collect();
                while !done.load(Ordering::Relaxed) {
                    let oldest = window.pop_front().unwrap();
                    drop(threaded::permit(oldest));
                    window.push_back(admit().1);
                }
                each_answer(&mut window.into(), drop);
            });
        }
        let dispatched = |p: &EngineSnapshot| [p.classes[0].dispatched, p.classes[1].dispatched];
        let both_wait = |p: &EngineSnapshot| p.classes.iter().all(|c| c.waiting.requests > 0);
        let first = until(&engine, |p| both_wait(p) && dispatched(p).iter().sum::<u64>() > 10_000);
        let last = until(&engine, |p| dispatched(p).iter().sum::<u64>() > 60_000);
        (first, last)
    });
    let served = |i: usize| (last.classes[i].dispatched - first.classes[i].dispatched) as f64;
    let ratio = served(0) / served(1);
    assert!((3.0..=5.0).contains(&ratio), "{} : {} is {ratio}", served(0), served(1));
    let median = |i: usize| last.classes[i].waits.value_at_quantile(0.5) as f64;
    assert!(median(0) * 2.0 < median(1), "{} ns against {} ns", median(0), median(1));
}

#[test]
fn a_flood_of_high_priority_in_one_class_took_the_share_of_the_others() {
    let mut s = common::scheduler(vec![class(100), class(100), class(200)], common::workers(1));
    let c = ClassId(2);
    let urgent = || now(Request { strict_priority: u32::MAX, priority_jump: 1e9, ..tokens(50) });
    fill(&mut s, B, 50, 1000, B);
    fill(&mut s, c, 50, 1000, c);
    let mut served = [0; 3];
    put(&mut s, A, urgent(), A);
    for _ in 0..1000 {
        put(&mut s, A, urgent(), A);
        served[s.next_request().unwrap().payload.index()] += 1;
    }
    for (served, share) in served.into_iter().zip([250i32, 250, 500]) {
        assert!((share - 4..=share + 4).contains(&served), "{served} instead of {share}");
    }
}

/// The same through the engine with one slot: every dispatch is followed by a fruitless look.
#[test]
fn a_flood_of_high_priority_took_the_share_of_the_others_at_saturation() {
    let classes = vec![threaded::exclusive("urgent", 512), threaded::exclusive("normal", 512)];
    let engine = threaded::engine(classes, vec![threaded::one_slot(1)]);
    let plug = threaded::permit(engine.admit(tokens(512).with_class("normal")).unwrap());
    let admit = |i: usize| {
        let strict_priority = if i == 0 { u32::MAX } else { 0 };
        let request = Request { strict_priority, ..tokens(128) };
        (i, engine.admit(request.with_class(["urgent", "normal"][i])).unwrap())
    };
    let mut waiting: Vec<_> = (0..40).map(|n| admit(n % 2)).collect();
    threaded::settled(&engine);
    drop(plug);
    let mut served = [0i32; 2];
    for _ in 0..400 {
        let (i, answer) = next_answer(&mut waiting);
        served[i] += 1;
        waiting.push(admit(i));
        threaded::settled(&engine);
        drop(answer.unwrap());
    }
    assert!((served[0] - served[1]).abs() <= 8, "{served:?}");
}

#[test]
fn a_class_without_backlog_was_given_up_for_one_that_floods() {
    let mut s = common::scheduler(vec![gated(100, 0), gated(100, 0)], common::workers(1));
    fill(&mut s, A, 100, 1000, A);
    for _ in 0..400 {
        put(&mut s, B, now(tokens(100)), B);
        let turn: Vec<_> = (0..2).map(|_| s.next_request().unwrap().payload).collect();
        assert!(turn.contains(&B), "B waits for more than one other request");
    }
}
