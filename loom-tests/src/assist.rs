//! Models of the whole engine whose callers assist: its real arbiter, lent and taken back, against one or two callers.
//!
//! Made like those in `engine.rs`, whose parts they use. A caller that assists runs turns of the real scheduler, so two
//! owners at once, or one that does not see what the other has done, are races that loom reports at the desk's cell.
//! Modelled and trusted: as in `engine.rs` and `lend.rs`.

use crate::engine::{
    MINUTE, TOKENS, admit, caller, no_limit, one_at_a_time, outcome, over, started_with_assist, sum,
};
use crate::model::{Seen, bound, check_late};

#[test]
fn release_against_an_admission_that_waits_for_it() {
    check_late("assist: release against an admission that waits for it", bound::ASSIST, || {
        let (engine, permit) = started_with_assist(one_at_a_time(&["a"]), TOKENS);
        let other = caller(&engine, |engine| drop(admit(&engine, TOKENS).wait().expect("open")));
        drop(permit);
        other.join().unwrap();
        assert_eq!(sum(&over(engine), |class| class.dispatched), 2);
    });
}

#[test]
fn two_admissions_for_one_place() {
    check_late("assist: two admissions for one place", bound::ASSIST_TWO_REQUESTS, || {
        let (engine, permit) = started_with_assist(one_at_a_time(&["a"]), 0);
        let other = caller(&engine, |engine| drop(admit(&engine, TOKENS).wait().expect("open")));
        drop(admit(&engine, TOKENS).wait().expect("open"));
        other.join().unwrap();
        drop(permit);
        assert_eq!(sum(&over(engine), |class| class.dispatched), 3);
    });
}

#[test]
fn two_admissions_that_find_room() {
    check_late("assist: two admissions that find room", bound::ASSIST_TWO_REQUESTS, || {
        let (engine, permit) = started_with_assist(no_limit(&["a"]), 0);
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
    check_late("assist: admission against close", bound::ASSIST_AT_ONCE, move || {
        let (engine, permit) = started_with_assist(one_at_a_time(&["a"]), 0);
        let other = caller(&engine, |engine| outcome(&engine).0);
        engine.close();
        engine.join();
        let what = other.join().unwrap();
        note.note(what);
        drop(permit);
        over(engine);
    });
    seen.assert(&["closed", "dispatched", "turned away"]);
}

#[test]
fn release_against_a_drain_that_waits_for_it() {
    check_late("assist: release against a drain that waits for it", bound::ASSIST, || {
        let (engine, permit) = started_with_assist(one_at_a_time(&["a"]), TOKENS);
        let admission = admit(&engine, TOKENS);
        let other = caller(&engine, |engine| engine.drain(MINUTE));
        drop(permit);
        engine.join();
        drop(admission.wait().expect("what waits still goes"));
        other.join().unwrap();
        assert_eq!(sum(&over(engine), |class| class.dispatched), 2);
    });
}

#[test]
fn cancel_against_a_picture() {
    check_late("assist: cancel against a picture", bound::ASSIST_AT_ONCE, || {
        let (engine, permit) = started_with_assist(one_at_a_time(&["a"]), TOKENS);
        let other = caller(&engine, |engine| admit(&engine, TOKENS).cancel());
        assert_eq!(sum(&engine.snapshot(), |class| class.dispatched), 1);
        other.join().unwrap();
        drop(permit);
        assert_eq!(sum(&over(engine), |class| class.ended()), 2);
    });
}
