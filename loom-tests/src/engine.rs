//! Models of the whole engine: the real arbiter on a thread of its own, against one or two callers.
//!
//! Each model begins with the arbiter in the middle of a turn and awake, so that every sleep that follows is explored;
//! how an engine starts is not. Each waits for something that comes only if the arbiter hears of the last event, so
//! that a lost wake-up leaves everybody waiting. Where a model is over, the engine is closed and its books are checked.
//! Modelled: everything that the threads share, by the parts that the other models look at one by one.
//! Trusted: the scheduler, which one thread owns. The clock goes on by a nanosecond whenever it is read, and a sleep with
//! a time limit is one without: what expires does so because the arbiter is awake.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::checker::thread::{self, JoinHandle};
use tollgate::policy::{ClassSpec, PolicySpec, Profile};
use tollgate::{
    Admission, Candidates, ClassChoice, ClassGuard, CorePinning, EndpointIndex, Engine, EngineBuilder,
    EngineSnapshot, Idle, LeastLoaded, Permit, Reason, Rejected, Request, Selector, Worker, WorkerSnapshot,
};

use crate::model::{Seen, begin, bound, check_late, stop};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// Prefill tokens of every request that makes a worker busy.
pub(crate) const TOKENS: u64 = 8;

/// The default selector, which starts the exploration with the first request that it sees.
#[derive(Default)]
struct Starter {
    explores: bool,
}

impl Selector for Starter {
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
        if !std::mem::replace(&mut self.explores, true) {
            begin();
        }
        LeastLoaded.select(candidates)
    }
}

/// Lets the request that names its class have it, and counts how often its caller looks for a queue. One that finds a
/// queue closed has to see in the next look what was done before that: the engine closed, or another queue.
struct LetsPass {
    looks_left: AtomicUsize,
}

impl ClassGuard for LetsPass {
    fn choose(&self, _: &Request) -> ClassChoice {
        let left = self.looks_left.fetch_sub(1, Ordering::Relaxed);
        assert_ne!(left, 0, "a queue was closed, and its caller does not see why");
        ClassChoice::AsAsked
    }
}

/// A policy of these classes, for each of which a worker is busy with any load.
pub(crate) fn one_at_a_time(classes: &[&str]) -> Profile {
    let classes: Vec<_> = classes.iter().map(|name| (*name, Some(0))).collect();
    policy(&classes)
}

/// A policy of these classes, for none of which a worker is ever busy.
pub(crate) fn no_limit(classes: &[&str]) -> Profile {
    let classes: Vec<_> = classes.iter().map(|name| (*name, None)).collect();
    policy(&classes)
}

/// A policy of these classes and the tokens that keep a worker busy for each.
fn policy(classes: &[(&str, Option<u64>)]) -> Profile {
    let class = |&(name, threshold_tokens): &(&str, _)| {
        let mut class = ClassSpec::explicit(name, TOKENS);
        class.busy.threshold_tokens = threshold_tokens;
        class
    };
    let classes = classes.iter().map(class).collect();
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).expect("a valid policy")
}

/// One worker on which others have booked `load` tokens.
pub(crate) fn worker(version: u64, load: u64) -> WorkerSnapshot {
    let worker = Worker { external_load: vec![load], ..Worker::new(1) };
    WorkerSnapshot::new(version, vec![worker]).expect("a valid worker")
}

/// An engine with one worker, on which the permit has booked `tokens`. The request that names its class finds a queue
/// at its first look, or the engine closed.
pub(crate) fn started(profile: Profile, tokens: u64) -> (Engine, Permit) {
    started_on(worker(1, 0), profile, tokens, 1)
}

/// The same for an engine that callers assist.
pub(crate) fn started_with_assist(profile: Profile, tokens: u64) -> (Engine, Permit) {
    first_permit(building(worker(1, 0), profile, 1).idle(Idle::Assist), tokens)
}

/// The same with a worker and a number of looks.
fn started_on(workers: WorkerSnapshot, profile: Profile, tokens: u64, looks: usize) -> (Engine, Permit) {
    first_permit(building(workers, profile, looks), tokens)
}

fn building(workers: WorkerSnapshot, profile: Profile, looks: usize) -> EngineBuilder {
    Engine::builder(profile)
        .workers(workers)
        .pinning(CorePinning::Off)
        .selector(Starter::default())
        .class_guard(LetsPass { looks_left: AtomicUsize::new(looks) })
}

fn first_permit(builder: EngineBuilder, tokens: u64) -> (Engine, Permit) {
    let engine = builder.start().expect("nothing keeps it from starting");
    let permit = admit(&engine, tokens).wait().expect("there is room");
    (engine, permit)
}

pub(crate) fn admit(engine: &Engine, tokens: u64) -> Admission {
    engine.admit(Request::new(tokens, 0)).expect("open")
}

/// Another caller, with an engine of its own.
pub(crate) fn caller<T: Send + 'static>(
    engine: &Engine,
    body: impl FnOnce(Engine) -> T + Send + 'static,
) -> JoinHandle<T> {
    let engine = engine.clone();
    thread::spawn(move || body(engine))
}

/// Admits a request that names its class, and waits; what became of it.
pub(crate) fn outcome(engine: &Engine) -> (&'static str, Option<Permit>) {
    let closed = |Rejected { reason, request }: Rejected, what| {
        assert_eq!(reason, Reason::Closed { cause: None });
        assert_eq!(request.raw_isl_tokens, TOKENS, "the request comes back");
        (what, None)
    };
    match engine.admit(Request::new(TOKENS, 0).with_class("a")) {
        Err(rejected) => closed(rejected, "turned away"),
        Ok(admission) => match admission.wait() {
            Err(rejected) => closed(rejected, "closed"),
            Ok(permit) => ("dispatched", Some(permit)),
        },
    }
}

/// Closes and checks that every request has ended once and nothing is booked.
pub(crate) fn end(engine: Engine) -> EngineSnapshot {
    engine.close();
    engine.join();
    let Err(Rejected { reason, .. }) = engine.admit(Request::new(TOKENS, 0)) else { panic!("closed") };
    assert_eq!(reason, Reason::Closed { cause: None }, "the arbiter has not panicked");
    let picture = engine.snapshot();
    for class in &picture.classes {
        assert_eq!(class.submitted, class.ended(), "{picture:?}");
        assert_eq!(class.waiting.requests, 0, "{picture:?}");
    }
    for (_, booked) in engine.booked() {
        assert_eq!((booked.tokens, booked.permits), (0, 0));
    }
    picture
}

/// The same, but how it closes is not explored.
pub(crate) fn over(engine: Engine) -> EngineSnapshot {
    stop();
    end(engine)
}

pub(crate) fn sum(picture: &EngineSnapshot, count: impl Fn(&tollgate::ClassStatus) -> u64) -> u64 {
    picture.classes.iter().map(count).sum()
}

#[test]
fn release_against_an_admission_that_waits_for_it() {
    check_late("engine: release against an admission that waits for it", bound::ENGINE, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), TOKENS);
        let other = caller(&engine, |engine| drop(admit(&engine, TOKENS).wait().expect("open")));
        drop(permit);
        other.join().unwrap();
        assert_eq!(sum(&over(engine), |class| class.dispatched), 2);
    });
}

#[test]
fn two_admissions_for_one_place() {
    check_late("engine: two admissions for one place", bound::ENGINE_TWO_REQUESTS, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), 0);
        let other = caller(&engine, |engine| drop(admit(&engine, TOKENS).wait().expect("open")));
        drop(admit(&engine, TOKENS).wait().expect("open"));
        other.join().unwrap();
        drop(permit);
        assert_eq!(sum(&over(engine), |class| class.dispatched), 3);
    });
}

#[test]
fn admission_against_close() {
    let seen = Seen::default();
    let note = seen.clone();
    check_late("engine: admission against close", bound::ENGINE, move || {
        let (engine, permit) = started(one_at_a_time(&["a"]), 0);
        let other = caller(&engine, |engine| outcome(&engine).0);
        engine.close();
        engine.join();
        let what = other.join().unwrap();
        note.note(what);
        drop(permit);
        let picture = over(engine);
        let (dispatched, closed) =
            (sum(&picture, |class| class.dispatched), sum(&picture, |class| class.closed));
        assert_eq!((dispatched, closed), (1 + u64::from(what == "dispatched"), u64::from(what == "closed")));
    });
    seen.assert(&["closed", "dispatched", "turned away"]);
}

#[test]
fn admission_against_drain() {
    let seen = Seen::default();
    let note = seen.clone();
    check_late("engine: admission against drain", bound::ENGINE, move || {
        let (engine, permit) = started(one_at_a_time(&["a"]), TOKENS);
        let other = caller(&engine, |engine| outcome(&engine).0);
        engine.drain(MINUTE);
        // What waits goes, and the drain ends.
        drop(permit);
        engine.join();
        let what = other.join().unwrap();
        note.note(what);
        let picture = over(engine);
        assert_eq!(sum(&picture, |class| class.dispatched), 1 + u64::from(what == "dispatched"));
    });
    seen.assert(&["dispatched", "turned away"]);
}

#[test]
fn drain_against_sleep() {
    check_late("engine: drain against sleep", bound::ENGINE_ONE_CALLER, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), 0);
        engine.drain(MINUTE);
        engine.join();
        drop(permit);
        over(engine);
    });
}

#[test]
fn a_shorter_drain_against_sleep() {
    check_late("engine: a shorter drain against sleep", bound::ENGINE_ONE_CALLER, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), TOKENS);
        let admission = admit(&engine, TOKENS);
        engine.drain(MINUTE);
        // There is no room for the request: the drain ends because its time is over.
        engine.drain(Duration::ZERO);
        engine.join();
        assert!(admission.wait().is_err());
        drop(permit);
        assert_eq!(sum(&over(engine), |class| class.closed), 1);
    });
}

#[test]
fn cancel_against_dispatch() {
    let seen = Seen::default();
    let note = seen.clone();
    check_late("engine: cancel against dispatch", bound::ENGINE, move || {
        let (engine, permit) = started(one_at_a_time(&["a"]), 0);
        admit(&engine, TOKENS).cancel();
        // Whatever became of it, there is room.
        drop(admit(&engine, TOKENS).wait().expect("open"));
        drop(permit);
        let picture = over(engine);
        let cancelled = sum(&picture, |class| class.cancelled);
        assert_eq!(sum(&picture, |class| class.dispatched), 3 - cancelled);
        note.note(if cancelled == 1 { "cancelled" } else { "dispatched" });
    });
    seen.assert(&["cancelled", "dispatched"]);
}

#[test]
fn expiry_against_dispatch() {
    let seen = Seen::default();
    let note = seen.clone();
    check_late("engine: expiry against dispatch", bound::ENGINE_ONE_CALLER, move || {
        let (engine, permit) = started(one_at_a_time(&["a"]), TOKENS);
        // A few turns of the arbiter.
        let deadline = Some(Duration::from_nanos(8));
        let admission = engine.admit(Request { deadline, ..Request::new(TOKENS, 0) }).expect("open");
        drop(permit);
        let what = match admission.wait() {
            Ok(_) => "dispatched",
            Err(Rejected { reason, .. }) => {
                assert!(matches!(reason, Reason::DeadlineExceeded { .. }), "{reason}");
                "expired"
            }
        };
        note.note(what);
        let picture = over(engine);
        let (dispatched, expired) =
            (sum(&picture, |class| class.dispatched), sum(&picture, |class| class.expired));
        assert_eq!((dispatched, expired), if what == "expired" { (1, 1) } else { (2, 0) });
    });
    seen.assert(&["dispatched", "expired"]);
}

#[test]
fn cancel_of_the_last_request_of_a_drain() {
    check_late("engine: cancel of the last request of a drain", bound::ENGINE_ONE_CALLER, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), TOKENS);
        let admission = admit(&engine, TOKENS);
        engine.drain(MINUTE);
        // There is no room for it: the drain ends because it leaves.
        drop(admission);
        engine.join();
        drop(permit);
        assert_eq!(sum(&over(engine), |class| class.cancelled), 1);
    });
}

#[test]
fn admission_against_a_reload_without_its_class() {
    let seen = Seen::default();
    let note = seen.clone();
    check_late("engine: admission against a reload without its class", bound::ENGINE, move || {
        let (engine, permit) = started_on(worker(1, 0), one_at_a_time(&["a", "b"]), 0, 2);
        let [old, new] = ["a", "b"].map(|name| engine.profile().class_id(name).expect("a class"));
        let other = caller(&engine, |engine| {
            let request = Request::new(TOKENS, 0).with_class("a");
            engine.admit(request).expect("open").wait().expect("open").class()
        });
        engine.reload(one_at_a_time(&["b"]));
        let class = other.join().unwrap();
        note.note(if class == old { "old" } else { "new" });
        assert!([old, new].contains(&class));
        drop(permit);
        over(engine);
    });
    seen.assert(&["new", "old"]);
}

#[test]
fn reload_against_an_admission_that_goes_by_the_new_policy() {
    check_late("engine: reload against an admission that goes by the new policy", bound::ENGINE, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), TOKENS);
        let other = caller(&engine, |engine| drop(admit(&engine, TOKENS).wait().expect("open")));
        engine.reload(policy(&[("a", None)]));
        other.join().unwrap();
        drop(permit);
        over(engine);
    });
}

#[test]
fn publish_against_an_admission_that_waits_for_it() {
    check_late("engine: publish against an admission that waits for it", bound::ENGINE, || {
        // The first request goes to a worker that is busy for the second.
        let profile = policy(&[("any", None), ("a", Some(0))]);
        let (engine, permit) = started_on(worker(1, TOKENS), profile, 0, 1);
        let other = caller(&engine, |engine| outcome(&engine).0);
        engine.publish(worker(2, 0)).expect("newer");
        assert_eq!(other.join().unwrap(), "dispatched");
        drop(permit);
        over(engine);
    });
}

#[test]
fn picture_against_close() {
    check_late("engine: picture against close", bound::ENGINE_ONE_CALLER, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), 0);
        let other = caller(&engine, |engine| engine.snapshot());
        engine.close();
        engine.join();
        assert_eq!(sum(&other.join().unwrap(), |class| class.dispatched), 1);
        drop(permit);
        over(engine);
    });
}

#[test]
fn picture_against_sleep() {
    check_late("engine: picture against sleep", bound::ENGINE_ONE_CALLER, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), 0);
        assert_eq!(sum(&engine.snapshot(), |class| class.dispatched), 1);
        drop(permit);
        over(engine);
    });
}

#[test]
fn two_pictures_against_sleep() {
    check_late("engine: two pictures against sleep", bound::ENGINE, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), 0);
        let other = caller(&engine, |engine| engine.snapshot());
        for picture in [engine.snapshot(), other.join().unwrap()] {
            assert_eq!(sum(&picture, |class| class.dispatched), 1);
        }
        drop(permit);
        over(engine);
    });
}
