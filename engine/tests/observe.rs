//! Hooks hear of every request once, and what they do wrong costs nobody anything.

mod threaded;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use threaded::{
    Braked, answer, at_rest, balanced, class, each_answer, exclusive, permit, profile, settled, until, worker,
};
use tollgate::policy::{ClassId, ClassSpec, Profile};
use tollgate::{
    Admission, ClassStatus, Endpoint, Engine, EngineSnapshot, Observed, Observer, Pin, Reason, Request,
    WorkerId, WorkerSnapshot,
};

/// What an observer was told: class, cost and what became of the request.
type Heard = (String, u64, String);

/// Writes down what it hears.
#[derive(Clone, Default)]
struct Scribe {
    heard: Arc<Mutex<Vec<Heard>>>,
    classes: Arc<Mutex<Vec<String>>>,
}

impl Scribe {
    fn note(&self, request: &Observed<'_>, fate: String) {
        let arrived = request.snapshot.arrival();
        assert!(arrived.saturating_add(request.waited) >= arrived);
        self.heard.lock().unwrap().push((request.name.to_string(), request.snapshot.cost(), fate));
    }

    fn heard(&self) -> Vec<Heard> {
        let mut heard = self.heard.lock().unwrap().clone();
        heard.sort();
        heard
    }

    /// How many of a class met this fate.
    fn count(&self, class: &ClassStatus, fate: &str) -> u64 {
        self.heard().iter().filter(|(name, _, f)| **name == *class.name && f == fate).count() as u64
    }
}

impl Observer for Scribe {
    fn classes(&mut self, classes: &[(ClassId, Arc<str>)]) {
        *self.classes.lock().unwrap() = classes.iter().map(|(_, name)| name.to_string()).collect();
    }

    fn dispatched(&mut self, request: &Observed<'_>, endpoint: Endpoint) {
        self.note(request, format!("to {endpoint}"));
    }

    fn left(&mut self, request: &Observed<'_>, reason: Option<&Reason>) {
        self.note(request, reason.map_or("cancelled", Reason::code).into());
    }
}

fn observed(profile: Profile, observer: impl Observer + 'static) -> Engine {
    Engine::builder(profile)
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .observer(observer)
        .start()
        .unwrap()
}

/// A class whose requests wait while the worker has any load, at most `limit` of them.
fn bounded(name: &str, limit: u64) -> ClassSpec {
    let mut class = exclusive(name, 1);
    class.limits.requests = Some(limit);
    class
}

#[test]
fn every_request_is_told_of_once_with_what_became_of_it() {
    let scribe = Scribe::default();
    let engine = observed(profile(vec![bounded("a", 2), class("b", 1)]), scribe.clone());
    let request = |cost, class: &str| Request::new(cost, 0).with_class(class);

    let running = permit(engine.admit(request(1, "a")).unwrap());
    let leaves = engine.admit(request(2, "a")).unwrap();
    let expires = Request { deadline: Some(Duration::from_millis(1)), ..Request::new(3, 0).with_class("a") };
    let expires = engine.admit(expires).unwrap();
    assert_eq!(answer(expires).unwrap_err().reason.code(), "deadline_exceeded");
    let waits = engine.admit(request(4, "a")).unwrap();
    until(&engine, |picture| picture.classes[0].waiting.requests == 2);
    assert_eq!(
        answer(engine.admit(request(5, "a")).unwrap()).unwrap_err().reason.code(),
        "queue_limit_requests"
    );
    let nowhere = Pin { worker: WorkerId(9), rank: None };
    let lost = Request { pin: Some(nowhere), ..request(6, "b") };
    assert_eq!(answer(engine.admit(lost).unwrap()).unwrap_err().reason.code(), "pinned_worker_unavailable");
    leaves.cancel();
    until(&engine, |picture| picture.classes[0].cancelled == 1);
    engine.close();
    assert_eq!(answer(waits).unwrap_err().reason, Reason::Closed { cause: None });
    engine.join();
    drop(running);

    let told = |class: &str, cost, fate: &str| (class.to_owned(), cost, fate.to_owned());
    assert_eq!(
        scribe.heard(),
        [
            told("a", 1, "to 1/0"),
            told("a", 2, "cancelled"),
            told("a", 3, "deadline_exceeded"),
            told("a", 4, "closed"),
            told("a", 5, "queue_limit_requests"),
            told("b", 6, "pinned_worker_unavailable"),
        ]
    );
    let picture = engine.snapshot();
    balanced(&picture);
    assert_eq!(picture.arbiter.hook_panics, 0);
}

#[test]
fn requests_of_one_turn_are_told_of_as_they_are_counted() {
    let scribe = Scribe::default();
    let braked =
        Braked::built(vec![exclusive("a", 1)], vec![worker(1)], |builder| builder.observer(scribe.clone()));
    let engine = &braked.engine;
    // Every third caller leaves before the arbiter has looked at its request.
    let mut admissions = Vec::new();
    braked.at_once(|| {
        for cost in 1..=100 {
            let admission = engine.admit(Request::new(cost, 0).with_class("a")).unwrap();
            if cost % 3 != 0 {
                admissions.push(admission);
            }
        }
    });
    each_answer(&mut admissions, |answer| drop(answer.unwrap()));
    let picture = at_rest(engine);
    settled(engine);
    let a = &picture.classes[0];
    assert_eq!((a.cancelled, a.dispatched), (33, 67));
    assert_eq!((scribe.count(a, "cancelled"), scribe.count(a, "to 1/0")), (33, 67));
}

/// Lets a caller leave as soon as another request is dispatched: in the middle of a turn.
struct Leaves(Arc<Mutex<Option<Admission>>>);

impl Observer for Leaves {
    fn dispatched(&mut self, request: &Observed<'_>, _: Endpoint) {
        if request.snapshot.cost() == 3 {
            drop(self.0.lock().unwrap().take());
        }
    }
}

#[test]
fn a_request_that_fails_when_its_caller_has_just_left_is_cancelled() {
    let (scribe, caller) = (Scribe::default(), Arc::new(Mutex::new(None)));
    let braked = Braked::built(vec![class("a", 100)], vec![worker(1)], |builder| {
        builder.observer(Leaves(caller.clone())).observer(scribe.clone())
    });
    let engine = &braked.engine;
    let nowhere = Pin { worker: WorkerId(9), rank: None };
    let first = braked.at_once(|| {
        let fails = Request { pin: Some(nowhere), ..Request::new(2, 0).with_class("a") };
        let first = engine.admit(Request::new(3, 0).with_class("a")).unwrap();
        *caller.lock().unwrap() = Some(engine.admit(fails).unwrap());
        first
    });
    drop(permit(first));
    let picture = until(engine, |picture| picture.classes[0].cancelled == 1);
    assert_eq!((picture.classes[0].failed, picture.arbiter.decisions), (0, 3));
    assert_eq!(scribe.count(&picture.classes[0], "cancelled"), 1);
}

#[test]
fn observers_are_told_of_new_classes_and_of_those_that_drain() {
    let scribe = Scribe::default();
    let engine = observed(profile(vec![exclusive("a", 1), exclusive("b", 1)]), scribe.clone());
    let classes = || scribe.classes.lock().unwrap().clone();
    assert_eq!(classes(), ["a", "b"]);
    let running = permit(engine.admit(Request::new(1, 0).with_class("a")).unwrap());
    let drains = engine.admit(Request::new(2, 0).with_class("b")).unwrap();
    engine.reload(profile(vec![exclusive("c", 1), exclusive("a", 1)]));
    settled(&engine);
    let mut now = classes();
    now.sort();
    assert_eq!(now, ["a", "b", "c"]);
    drop(running);
    drop(permit(drains));
    drop(permit(engine.admit(Request::new(3, 0).with_class("c")).unwrap()));
    settled(&engine);
    let names: Vec<_> = scribe.heard().into_iter().map(|(name, cost, _)| (name, cost)).collect();
    assert_eq!(names, [("a".into(), 1), ("b".into(), 2), ("c".into(), 3)]);
}

/// Panics at every call, with something that panics when it is dropped, and when it is dropped itself.
#[derive(Default)]
struct Furious(Arc<Mutex<u64>>);

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("while being dropped");
    }
}

impl Furious {
    fn explode(&self) -> ! {
        *self.0.lock().unwrap() += 1;
        std::panic::panic_any(Bomb)
    }
}

impl Observer for Furious {
    fn classes(&mut self, _: &[(ClassId, Arc<str>)]) {
        self.explode();
    }

    fn dispatched(&mut self, _: &Observed<'_>, _: Endpoint) {
        self.explode();
    }

    fn left(&mut self, _: &Observed<'_>, _: Option<&Reason>) {
        self.explode();
    }
}

impl Drop for Furious {
    fn drop(&mut self) {
        panic!("at the end");
    }
}

#[test]
fn a_hook_that_panics_at_every_call_costs_nobody_anything() {
    let calls = Arc::new(Mutex::new(0));
    let scribe = Scribe::default();
    let engine = Engine::builder(profile(vec![bounded("a", 1), class("b", 1)]))
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .observer(Furious(calls.clone()))
        .observer(scribe.clone())
        .start()
        .unwrap();
    let running = permit(engine.admit(Request::new(1, 0).with_class("a")).unwrap());
    let leaves = engine.admit(Request::new(2, 0).with_class("a")).unwrap();
    until(&engine, |picture| picture.classes[0].waiting.requests == 1);
    let refused = answer(engine.admit(Request::new(3, 0).with_class("a")).unwrap());
    assert_eq!(refused.unwrap_err().reason.code(), "queue_limit_requests");
    drop(leaves);
    until(&engine, |picture| picture.classes[0].cancelled == 1);
    let mut many = (0..50).map(|i| engine.admit(Request::new(10 + i, 0).with_class("b")).unwrap()).collect();
    each_answer(&mut many, |answer| drop(answer.unwrap()));
    engine.reload(profile(vec![bounded("a", 1), class("b", 1), class("c", 1)]));
    drop(permit(engine.admit(Request::new(70, 0).with_class("b")).unwrap()));
    let waits = engine.admit(Request::new(80, 0).with_class("a")).unwrap();
    let EngineSnapshot { arbiter, .. } = until(&engine, |picture| picture.classes[0].waiting.requests == 1);
    // Two lists of classes, one permit, one limit, one cancel, fifty permits, one permit.
    assert_eq!(arbiter.hook_panics, 56);
    engine.close();
    assert_eq!(answer(waits).unwrap_err().reason, Reason::Closed { cause: None });
    engine.join();
    drop(running);
    assert_eq!(*calls.lock().unwrap(), 57);
    // The one that comes after it hears everything.
    assert_eq!(scribe.heard().len(), 55);
    balanced(&engine.snapshot());
}

#[test]
fn a_hook_may_hold_its_engine_and_join_it_but_not_look_at_it() {
    struct Holds(Arc<Mutex<Option<Engine>>>);
    impl Observer for Holds {
        fn dispatched(&mut self, _: &Observed<'_>, _: Endpoint) {
            if let Some(engine) = self.0.lock().unwrap().as_ref() {
                engine.join();
                engine.snapshot();
            }
        }
    }
    let held = Arc::new(Mutex::new(None));
    let engine = observed(profile(vec![class("only", 1)]), Holds(held.clone()));
    *held.lock().unwrap() = Some(engine.clone());
    drop(permit(engine.admit(Request::new(1, 0)).unwrap()));
    // The hook's picture was a panic, under the lock.
    until(&engine, |picture| picture.arbiter.hook_panics == 1);
    drop(permit(engine.admit(Request::new(1, 0)).unwrap()));
    until(&engine, |picture| picture.arbiter.hook_panics == 2);
    held.clear_poison();
    held.lock().unwrap().take();
}
