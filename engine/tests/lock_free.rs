//! One thread is stopped at every step of what it does, and everybody else goes on.
//!
//! An operation is run once for each place between two of its steps (`sync::points`): its thread stops there, and stays
//! until the others have had requests served, cancelled and released, workers published and a picture taken. The places
//! that were met are compared with those that the operation has, so that none is left out.

mod threaded;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use threaded::{class, permit, profile, waits, worker};
use tollgate::sync::points::{Step, install};
use tollgate::{Admission, Engine, EngineBuilder, Idle, Pin, Request, Worker, WorkerId, WorkerSnapshot};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which place a thread stops at.
enum At {
    /// Any, after this many.
    After(usize),
    /// The first of this kind.
    Step(Step),
}

/// Where a thread stops, whom it tells, and what it waits for.
struct Stop {
    at: At,
    stopped: Sender<Option<Step>>,
    gate: Arc<Gate>,
}

/// What a stopped thread waits for. Not a channel: that would park the thread, and take wake-ups that are meant for the
/// arbiter's own sleep.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// Lets a stopped thread go on, at the latest when it is dropped.
struct Release(Arc<Gate>);

impl Drop for Release {
    fn drop(&mut self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }
}

thread_local! {
    static STOP: Cell<Option<Stop>> = const { Cell::new(None) };
    /// The arbiter's thread stops when it is told from outside.
    static IS_ARBITER: bool = thread::current().name() == Some("tollgate-arbiter");
}

/// The stop of the next arbiter that comes by.
static ARBITER: Mutex<Option<Stop>> = Mutex::new(None);

fn hook(step: Step) {
    let mut stop = STOP.take();
    if stop.is_none() && IS_ARBITER.with(|is| *is) {
        stop = ARBITER.lock().unwrap().take();
    }
    let Some(mut stop) = stop else { return };
    let here = match &mut stop.at {
        At::After(0) => true,
        At::After(left) => {
            *left -= 1;
            false
        }
        At::Step(wanted) => *wanted == step,
    };
    if here {
        // A test that has failed does not listen any more.
        let _ = stop.stopped.send(Some(step));
        stop.gate.pass();
    } else {
        STOP.set(Some(stop));
    }
}

fn stop(at: At) -> (Stop, Receiver<Option<Step>>, Release) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| install(hook));
    let (stopped, told) = channel();
    let gate = Arc::<Gate>::default();
    (Stop { at, stopped, gate: gate.clone() }, told, Release(gate))
}

/// Only one test at a time has an arbiter that may take what is in [`ARBITER`].
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two classes, two workers that take everything.
fn engine() -> Engine {
    built(|builder| builder)
}

fn built(build: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Engine {
    let workers = WorkerSnapshot::new(1, vec![worker(1), worker(2)]).unwrap();
    build(Engine::builder(profile(vec![class("a", 4), class("b", 1)])).workers(workers)).start().unwrap()
}

fn request(class: &str) -> Request {
    Request::new(8, 0).with_class(class)
}

/// Everything that others do: each request is answered, releases and cancels reach the arbiter, a snapshot with a newer
/// version takes effect, a picture is taken.
fn others_go_on(engine: &Engine, version: u64) {
    let served = |engine: Engine, class: &'static str| {
        move || {
            for i in 0..20 {
                let admission = engine.admit(request(class)).unwrap();
                if i % 4 == 3 { admission.cancel() } else { drop(permit(admission)) }
            }
        }
    };
    let threads = ["a", "a", "b"].map(|class| thread::spawn(served(engine.clone(), class)));
    let (publisher, published) = (engine.clone(), version);
    let publisher = thread::spawn(move || {
        publisher
            .publish(WorkerSnapshot::new(published, vec![worker(1), worker(2), worker(3)]).unwrap())
            .unwrap();
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    publisher.join().unwrap();
    // The arbiter has taken the snapshot, and everything is released: it goes on.
    threaded::until(engine, |picture| {
        let waiting: u64 = picture.classes.iter().map(|class| class.waiting.requests).sum();
        picture.endpoints.len() == 3 && waiting == 0
    });
}

/// Stops a thread at each place of `operation`, which gets what `prepare` has made, and lets the others go on
/// meanwhile. Returns the places.
fn stopped_at_each_step<T: Send + 'static>(
    prepare: impl Fn(&Engine) -> T,
    operation: impl Fn(&Engine, T) + Clone + Send + 'static,
) -> BTreeSet<Step> {
    let _alone = alone();
    let mut places = BTreeSet::new();
    for passed in 0.. {
        let engine = engine();
        let prepared = prepare(&engine);
        let (stop, told, release) = stop(At::After(passed));
        let over = stop.stopped.clone();
        let held = {
            let (engine, operation) = (engine.clone(), operation.clone());
            thread::spawn(move || {
                STOP.set(Some(stop));
                operation(&engine, prepared);
                STOP.set(None);
                let _ = over.send(None);
            })
        };
        let place = told.recv_timeout(PATIENCE).expect("it stops, or ends");
        if place.is_some() {
            others_go_on(&engine, 10);
        }
        drop(release);
        held.join().unwrap();
        threaded::drained(&engine);
        match place {
            Some(place) => places.insert(place),
            None => return places,
        };
    }
    unreachable!("every operation ends")
}

fn set(places: &[Step]) -> BTreeSet<Step> {
    places.iter().copied().collect()
}

/// Those that are always there; others depend on what the arbiter does at the same time.
fn covers(met: &BTreeSet<Step>, always: &[Step], sometimes: &[Step]) {
    let (always, sometimes) = (set(always), set(sometimes));
    assert!(met.is_superset(&always), "not met: {:?}", &always - met);
    assert!(met.is_subset(&(&always | &sometimes)), "unknown: {:?}", met);
}

const NOTIFY: [Step; 2] = [Step::NotifyFenced, Step::NotifySeen];

#[test]
fn a_producer_stopped_at_any_step_of_its_push_holds_up_nobody() {
    let met = stopped_at_each_step(
        |_| (),
        |engine, ()| {
            let admission = engine.admit(request("a")).unwrap();
            STOP.set(None);
            drop(permit(admission));
        },
    );
    use Step::{MarkClear, MarkFenced, NotifyFenced, NotifySeen, PushCounted, PushLinked, Pushed};
    covers(&met, &[PushCounted, PushLinked, Pushed, MarkClear, NotifyFenced], &[MarkFenced, NotifySeen]);
}

#[test]
fn a_publisher_stopped_in_the_middle_holds_up_nobody() {
    let met = stopped_at_each_step(
        |_| (),
        |engine, ()| {
            // Others may publish a newer version meanwhile; then this one comes too late, and is told so.
            let _ = engine.publish(WorkerSnapshot::new(5, vec![worker(1), worker(2)]).unwrap());
        },
    );
    covers(&met, &[Step::ReplaceAccepted, Step::Replaced, Step::NotifyFenced], &NOTIFY);
}

#[test]
fn a_reload_stopped_in_the_middle_holds_up_nobody() {
    let met =
        stopped_at_each_step(|_| (), |engine, ()| engine.reload(profile(vec![class("a", 2), class("b", 2)])));
    covers(&met, &[Step::ReplaceAccepted, Step::Replaced, Step::NotifyFenced], &NOTIFY);
}

/// A request that waits for a worker that is full, so that cancelling it goes the whole way.
fn waiting(engine: &Engine) -> (Admission, tollgate::Permit) {
    let full = tollgate::Worker { max_active_requests: Some(1), ..worker(1) };
    engine.publish(WorkerSnapshot::new(2, vec![full, worker(2)]).unwrap()).unwrap();
    let pinned =
        || Request { pin: Some(tollgate::Pin { worker: tollgate::WorkerId(1), rank: None }), ..request("a") };
    threaded::settled(engine);
    let running = permit(engine.admit(pinned()).unwrap());
    let mut admission = engine.admit(pinned()).unwrap();
    assert!(waits(&mut admission));
    threaded::until(engine, |picture| picture.classes[0].waiting.requests == 1);
    (admission, running)
}

#[test]
fn a_caller_stopped_in_the_middle_of_a_cancel_holds_up_nobody() {
    let met = stopped_at_each_step(waiting, |_, (admission, running)| {
        drop(admission);
        STOP.set(None);
        drop(running);
    });
    use Step::{Gone, NotifyFenced, PushCounted, PushLinked, Pushed};
    covers(&met, &[Gone, PushCounted, PushLinked, Pushed, NotifyFenced], &NOTIFY);
}

#[test]
fn a_releaser_stopped_in_the_middle_holds_up_nobody() {
    let met =
        stopped_at_each_step(|engine| permit(engine.admit(request("a")).unwrap()), |_, permit| drop(permit));
    use Step::{MarkClear, MarkFenced, NotifyFenced, NotifySeen, Released, ReleasedTokens};
    covers(&met, &[ReleasedTokens, Released, MarkClear, NotifyFenced], &[MarkFenced, NotifySeen]);
}

#[test]
fn an_arbiter_stopped_at_any_step_holds_up_no_caller_that_does_not_wait_for_an_answer() {
    use Step::{Announced, AnswerWritten, Answered, Drained, Rechecked, Swept, Taken, Turn, Woken};
    let _alone = alone();
    for step in [Turn, Swept, Taken, Drained, AnswerWritten, Answered, Announced, Rechecked, Woken] {
        let engine = engine();
        let running = permit(engine.admit(request("a")).unwrap());
        let (stop, told, release) = stop(At::Step(step));
        *ARBITER.lock().unwrap() = Some(stop);
        let waiting = engine.admit(request("b")).unwrap();
        let patience = std::time::Instant::now() + PATIENCE;
        // It sleeps when nothing comes for a while, and wakes when something does.
        while told.recv_timeout(Duration::from_millis(5)).is_err() {
            assert!(std::time::Instant::now() < patience, "it does not come by {step:?}");
            engine.admit(request("a")).unwrap().cancel();
        }
        // If one of these waited for the arbiter, the test would not go on.
        drop(running);
        engine.admit(request("a")).unwrap().cancel();
        let mut late = engine.admit(request("a")).unwrap();
        assert!(waits(&mut late), "there is nobody to answer");
        engine.publish(WorkerSnapshot::new(20, vec![worker(1), worker(2)]).unwrap()).unwrap();
        engine.reload(profile(vec![class("a", 3), class("b", 3)]));
        engine.booked();
        engine.profile();
        drop(release);
        for admission in [waiting, late] {
            drop(permit(admission));
        }
        threaded::drained(&engine);
    }
}

/// What [`Idle::Assist`] gives up: a caller that stops in the middle of a turn holds up those that wait for an answer.
/// What it keeps: nobody else.
#[test]
fn a_caller_stopped_in_an_assisted_turn_holds_up_no_caller_that_does_not_wait_for_an_answer() {
    use Step::{Announced, AnswerWritten, Answered, Borrowed, Drained, Rechecked, Swept, Taken, Turn};
    let _alone = alone();
    // At once, and through the queue, as something waits.
    let at_once = [Borrowed, Swept, Announced, Rechecked].map(|step| (step, false));
    let queued = [Borrowed, Turn, Swept, Taken, Drained, AnswerWritten, Answered, Announced, Rechecked];
    for (step, something_waits) in at_once.into_iter().chain(queued.map(|step| (step, true))) {
        let engine = built(|builder| builder.idle(Idle::Assist));
        let one_at_a_time = Worker { max_active_requests: Some(1), ..worker(3) };
        engine.publish(WorkerSnapshot::new(2, vec![worker(1), worker(2), one_at_a_time]).unwrap()).unwrap();
        let pinned = || {
            let mut request = request("b");
            request.pin = Some(Pin { worker: WorkerId(3), rank: None });
            engine.admit(request).unwrap()
        };
        let blocked = something_waits.then(|| (permit(pinned()), pinned()));
        let running = permit(engine.admit(request("a")).unwrap());
        let (stop, told, release) = stop(At::Step(step));
        let over = Arc::new(AtomicBool::new(false));
        let assistant = {
            let (engine, over) = (engine.clone(), over.clone());
            thread::spawn(move || {
                STOP.set(Some(stop));
                // Until it finds the arbiter asleep.
                while !over.load(Ordering::Relaxed) {
                    drop(permit(engine.admit(request("a")).unwrap()));
                    thread::sleep(Duration::from_millis(1));
                }
            })
        };
        told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not come by {step:?}"));
        over.store(true, Ordering::Relaxed);
        // If one of these waited for the turn, the test would not go on.
        drop(running);
        engine.admit(request("a")).unwrap().cancel();
        let mut late = engine.admit(request("a")).unwrap();
        assert!(waits(&mut late), "there is nobody to answer");
        engine.publish(WorkerSnapshot::new(20, vec![worker(1), worker(2)]).unwrap()).unwrap();
        engine.reload(profile(vec![class("a", 3), class("b", 3)]));
        engine.booked();
        engine.profile();
        drop(release);
        drop(permit(late));
        assistant.join().unwrap();
        drop(blocked);
        threaded::drained(&engine);
    }
}

#[test]
fn whoever_waits_for_a_stopped_arbiter_does_wait() {
    let _alone = alone();
    let engine = engine();
    let (stop, told, release) = stop(At::After(0));
    *ARBITER.lock().unwrap() = Some(stop);
    let (answered, heard) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            engine.snapshot();
            answered.send(()).unwrap();
        });
        told.recv_timeout(PATIENCE).expect("the question wakes it");
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err());
        drop(release);
        heard.recv_timeout(PATIENCE).expect("it goes on");
    });
}
