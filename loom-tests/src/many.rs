//! The protocols with more threads than loom can explore, under shuttle.

use tollgate::{Engine, Permit, Reason, Rejected, Request};

use crate::checker::thread;
use crate::dirty::markers_against_a_sweep;
use crate::engine::{TOKENS, admit, caller, end, one_at_a_time, started, started_with_assist, sum, worker};
use crate::ingress::close_against;
use crate::lend::lend_against;
use crate::model::{Seen, bound, check};
use crate::sleep::sleep_against;

#[test]
fn close_against_six_producers() {
    check("many: close against six producers", bound::NONE, || close_against(6, 4));
}

#[test]
fn sleep_against_six_notifiers() {
    check("many: sleep against six notifiers", bound::NONE, || sleep_against(6, 3));
}

#[test]
fn lend_against_six_notifiers() {
    check("many: lend against six notifiers", bound::NONE, || lend_against(6, 3, &Seen::default()));
}

#[test]
fn eight_markers_of_three_bits() {
    check("many: markers of three bits", bound::NONE, || markers_against_a_sweep([0, 1, 2, 0, 1, 2, 0, 1]));
}

/// Callers that wait, that leave and that only look, while workers and policies change, and an end in the middle.
fn callers_against_everything(started: (Engine, Permit), callers: usize, end_by_drain: bool) {
    let (engine, permit) = started;
    let callers: Vec<_> = (0..callers)
        .map(|i| {
            caller(&engine, move |engine| match engine.admit(Request::new(TOKENS, 0)) {
                Err(Rejected { reason, .. }) => assert_eq!(reason, Reason::Closed { cause: None }),
                Ok(admission) if i % 3 == 2 => admission.cancel(),
                Ok(admission) => match admission.wait() {
                    Ok(permit) => drop(permit),
                    Err(Rejected { reason, .. }) => assert_eq!(reason, Reason::Closed { cause: None }),
                },
            })
        })
        .collect();
    let others = [
        caller(&engine, |engine| engine.publish(worker(2, 0)).expect("newer")),
        caller(&engine, |engine| engine.reload(one_at_a_time(&["b"]))),
        caller(&engine, |engine| drop(engine.snapshot())),
        caller(&engine, move |engine| {
            thread::yield_now();
            if end_by_drain { engine.drain(std::time::Duration::from_secs(60)) } else { engine.close() }
        }),
    ];
    drop(permit);
    for thread in callers.into_iter().chain(others) {
        thread.join().unwrap();
    }
    let picture = end(engine);
    // A class that has gone takes its counts along.
    let is_there = picture.classes.iter().any(|class| &*class.name == "a");
    assert!(!is_there || sum(&picture, |class| class.dispatched) >= 1, "{picture:?}");
}

#[test]
fn seven_callers_against_everything_and_a_close() {
    check("many: seven callers against everything and a close", bound::NONE, || {
        callers_against_everything(started(one_at_a_time(&["a", "b"]), TOKENS), 7, false);
    });
}

#[test]
fn seven_callers_against_everything_and_a_drain() {
    check("many: seven callers against everything and a drain", bound::NONE, || {
        callers_against_everything(started(one_at_a_time(&["a", "b"]), TOKENS), 7, true);
    });
}

#[test]
fn seven_callers_that_assist_against_everything_and_a_close() {
    check("many: seven callers that assist against everything and a close", bound::NONE, || {
        callers_against_everything(started_with_assist(one_at_a_time(&["a", "b"]), TOKENS), 7, false);
    });
}

#[test]
fn seven_callers_that_assist_against_everything_and_a_drain() {
    check("many: seven callers that assist against everything and a drain", bound::NONE, || {
        callers_against_everything(started_with_assist(one_at_a_time(&["a", "b"]), TOKENS), 7, true);
    });
}

#[test]
fn twelve_requests_for_one_place() {
    check("many: twelve requests for one place", bound::NONE, || {
        let (engine, permit) = started(one_at_a_time(&["a"]), TOKENS);
        let callers: Vec<_> = (0..6)
            .map(|_| {
                caller(&engine, |engine| {
                    for _ in 0..2 {
                        drop(admit(&engine, TOKENS).wait().expect("open"));
                    }
                })
            })
            .collect();
        drop(permit);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert_eq!(sum(&end(engine), |class| class.dispatched), 13);
    });
}
