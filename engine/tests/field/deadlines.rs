//! Requests that wait too long.

use std::time::Duration;

use tollgate::{Pin, Reason, Request, WaitCause, WorkerId};

use crate::common::{self, pinned, tokens};
use crate::threaded::{answer, at_rest, engine, exclusive, one_slot, permit, profile, settled, waits};

const SHORT: Duration = Duration::from_millis(30);

fn hurried(request: Request) -> Request {
    Request { deadline: Some(SHORT), ..request }
}

#[test]
fn a_deadline_went_by_unseen_while_nothing_else_happened() {
    let pin = |rank| Pin { worker: WorkerId(1), rank };
    let blocked = [
        (hurried(tokens(10)), WaitCause::PoolBusy),
        (hurried(common::constrained(Some(&[1]), &[], tokens(10))), WaitCause::PoolBusy),
        (hurried(pinned(1, None, tokens(10))), WaitCause::PinBusy { pin: pin(None) }),
        (hurried(pinned(1, Some(0), tokens(10))), WaitCause::PinBusy { pin: pin(Some(0)) }),
    ];
    for (request, why) in blocked {
        for by_class in [false, true] {
            let mut only = exclusive("only", 1);
            only.max_queue_time = Some(if by_class { SHORT } else { Duration::from_secs(3600) });
            let deadline = if by_class { None } else { request.deadline };
            let engine = engine(vec![only, exclusive("patient", 1)], vec![one_slot(1)]);
            let plug = permit(engine.admit(tokens(1).with_class("patient")).unwrap());
            let head = engine.admit(Request { deadline, ..request.clone() }).unwrap();
            let behind = Request { deadline: None, ..request.clone() };
            let mut behind = engine.admit(behind.with_class("patient")).unwrap();
            let Reason::DeadlineExceeded { waited, cause } = answer(head).unwrap_err().reason else {
                panic!()
            };
            assert!(waited >= SHORT && waited < Duration::from_secs(3600), "{waited:?}");
            assert_eq!(cause, why);
            assert!(waits(&mut behind));
            drop(plug);
            drop(permit(behind));
            let picture = at_rest(&engine);
            assert_eq!((picture.classes[0].expired, picture.classes[1].dispatched), (1, 2));
        }
    }
}

#[test]
fn what_stood_behind_an_expired_head_did_not_move_up() {
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let head = engine.admit(hurried(tokens(10))).unwrap();
    let behind = engine.admit(tokens(20)).unwrap();
    let reason = answer(head).unwrap_err().reason;
    assert_eq!((reason.code(), reason.http_status()), ("deadline_exceeded", 504));
    assert_eq!(settled(&engine).classes[0].waiting.raw_isl_tokens, 20);
    drop(plug);
    assert_eq!(permit(behind).cost(), 20);
    let only = &at_rest(&engine).classes[0];
    assert_eq!((only.dispatched_tokens, only.expired), (21, 1));
}

#[test]
fn the_earlier_of_two_deadlines_was_not_the_one_that_counted() {
    let mut only = exclusive("only", 1);
    only.max_queue_time = Some(Duration::from_secs(3600));
    let engine = engine(vec![only], vec![one_slot(1)]);
    let _plug = permit(engine.admit(tokens(1)).unwrap());
    let mut patient = engine.admit(Request { deadline: Some(Duration::MAX), ..tokens(10) }).unwrap();
    settled(&engine);
    // The arbiter sleeps until the far deadline, and has to take the near one over.
    let hurried = engine.admit(hurried(tokens(10))).unwrap();
    assert!(matches!(answer(hurried).unwrap_err().reason, Reason::DeadlineExceeded { .. }));
    assert!(waits(&mut patient));
}

#[test]
fn a_new_policy_changed_the_patience_of_those_who_waited() {
    let timed = |limit| {
        let mut only = exclusive("only", 1);
        only.max_queue_time = limit;
        profile(vec![only, exclusive("patient", 1)])
    };
    let engine = engine(timed(Some(SHORT)).classes().to_vec(), vec![one_slot(1)]);
    let _plug = permit(engine.admit(tokens(1).with_class("patient")).unwrap());
    let before = engine.admit(tokens(10)).unwrap();
    settled(&engine);
    engine.reload(timed(None));
    settled(&engine);
    let mut after = engine.admit(tokens(10)).unwrap();
    assert!(matches!(answer(before).unwrap_err().reason, Reason::DeadlineExceeded { .. }));
    assert!(waits(&mut after));
}
