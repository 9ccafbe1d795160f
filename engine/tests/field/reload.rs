//! A new policy while requests wait and come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::policy::{ClassSpec, Profile, QueuePolicy};
use tollgate::{ClassChoice, Engine, LimitKind, Reason, Request, WorkerSnapshot};

use crate::common::tokens;
use crate::threaded::{
    answer, at_rest, class, each_answer, engine, exclusive, next_answer, one_slot, permit, profile, settled,
    until, worker,
};

/// A class comes and goes under eight threads that ask for it.
#[test]
fn a_class_that_was_removed_took_requests_with_it() {
    const THREADS: u64 = 8;
    const EACH: u64 = 4000;
    const WINDOW: usize = 32;
    let mut classes = vec![class("main", 100), class("guest", 100)];
    for c in &mut classes {
        c.busy.threshold_tokens = Some(200);
    }
    let engine = engine(classes.clone(), vec![worker(1)]);
    let with: std::sync::Arc<Profile> = profile(classes.clone()).into();
    let without: std::sync::Arc<Profile> = profile(classes[..1].to_vec()).into();
    let (ended, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (engine, ended) = (engine.clone(), &ended);
                scope.spawn(move || {
                    let mut window = Vec::with_capacity(WINDOW);
                    for i in 1..=EACH {
                        window.push(engine.admit(tokens(50).with_class("guest")).unwrap());
                        if window.len() == WINDOW || i == EACH {
                            each_answer(&mut window, |answer| {
                                assert_eq!(answer.expect("no reason to refuse it").cost(), 50);
                                ended.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    }
                })
            })
            .collect();
        let mut reloads = 0;
        while !threads.iter().all(|t| t.is_finished()) || reloads < 100 {
            engine.reload(if reloads % 2 == 0 { &without } else { &with }.clone());
            reloads += 1;
            thread::sleep(Duration::from_micros(reloads % 7 * 50));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(ended.into_inner(), THREADS * EACH);
    engine.reload(without);
    settled(&engine);
    let late = permit(engine.admit(tokens(50).with_class("guest")).unwrap());
    assert_eq!(engine.class_name(late.class()).as_deref(), Some("main"));
    drop(late);
    until(&engine, |p| p.endpoints[0].active == 0 && p.classes.iter().all(|c| c.waiting.requests == 0));
}

#[test]
fn what_waited_in_a_removed_class_was_lost_and_what_came_later_refused() {
    let classes = vec![exclusive("main", 1), exclusive("guest", 1)];
    let engine = engine(classes.clone(), vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting: Vec<_> =
        (0..10).map(|_| ("guest", engine.admit(tokens(5).with_class("guest")).unwrap())).collect();
    settled(&engine);
    engine.reload(profile(classes[..1].to_vec()));
    let picture = settled(&engine);
    let names: Vec<_> = picture.classes.iter().map(|c| (&*c.name, c.waiting.requests)).collect();
    assert_eq!(names, [("main", 0), ("guest", 10)]);
    waiting.extend((0..10).map(|_| ("main", engine.admit(tokens(5).with_class("guest")).unwrap())));
    let picture = settled(&engine);
    assert_eq!(picture.classes[0].waiting.requests, 10);
    drop(plug);
    while !waiting.is_empty() {
        let (name, answer) = next_answer(&mut waiting);
        let class = answer.unwrap().class();
        assert_eq!(&*picture.classes.iter().find(|c| c.id == class).unwrap().name, name);
    }
    at_rest(&engine);
}

#[test]
fn a_guarded_request_changed_its_class_when_the_policy_changed_under_it() {
    let classes = vec![exclusive("main", 1), exclusive("guest", 1), exclusive("vip", 1)];
    let engine = Engine::builder(profile(classes.clone()))
        .workers(WorkerSnapshot::new(1, vec![one_slot(1)]).unwrap())
        .class_guard(|_: &Request| ClassChoice::Instead("guest".into()))
        .start()
        .unwrap();
    engine.reload(profile(vec![classes[0].clone(), classes[2].clone()]));
    settled(&engine);
    let permit = permit(engine.admit(tokens(1).with_class("vip")).unwrap());
    assert_eq!(engine.class_name(permit.class()).as_deref(), Some("main"));
}

#[test]
fn new_limits_held_only_for_an_empty_class() {
    let limited = |limit| {
        let mut only = exclusive("only", 1);
        only.limits.requests = limit;
        only
    };
    let engine = engine(vec![limited(None)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting: Vec<_> = (0..5).map(|_| engine.admit(tokens(1)).unwrap()).collect();
    settled(&engine);
    engine.reload(profile(vec![limited(Some(3))]));
    settled(&engine);
    let reason = answer(engine.admit(tokens(1)).unwrap()).unwrap_err().reason;
    let Reason::QueueLimit(at) = reason else { panic!("{reason}") };
    assert_eq!((at.kind, at.current, at.limit), (LimitKind::Requests, 5, 3));
    engine.reload(profile(vec![limited(Some(6))]));
    settled(&engine);
    waiting.push(engine.admit(tokens(1)).unwrap());
    assert_eq!(settled(&engine).classes[0].waiting.requests, 6);
    drop(plug);
    each_answer(&mut waiting, |answer| drop(answer.unwrap()));
    at_rest(&engine);
}

#[test]
fn a_new_order_held_only_for_what_came_later() {
    let ordered = |order| ClassSpec { order, ..exclusive("only", 1) };
    let engine = engine(vec![ordered(QueuePolicy::Fcfs)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting: Vec<_> = [40, 10, 30].map(|n| (n, engine.admit(tokens(n)).unwrap())).into();
    settled(&engine);
    engine.reload(profile(vec![ordered(QueuePolicy::Wspt)]));
    settled(&engine);
    waiting.push((20, engine.admit(tokens(20)).unwrap()));
    settled(&engine);
    drop(plug);
    let mut served = Vec::new();
    while !waiting.is_empty() {
        let (n, answer) = next_answer(&mut waiting);
        drop(answer.unwrap());
        served.push(n);
    }
    assert_eq!(served, [10, 20, 30, 40]);
}

#[test]
fn the_books_of_a_class_that_came_back_before_it_had_drained_did_not_balance() {
    let classes = vec![exclusive("main", 1), exclusive("guest", 1)];
    let engine = engine(classes.clone(), vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting: Vec<_> = (0..3).map(|_| engine.admit(tokens(5).with_class("guest")).unwrap()).collect();
    settled(&engine);
    engine.reload(profile(classes[..1].to_vec()));
    settled(&engine);
    engine.reload(profile(classes));
    settled(&engine);
    drop(plug);
    each_answer(&mut waiting, |answer| drop(answer.unwrap()));
    let guest = &settled(&engine).classes[1];
    assert_eq!((guest.submitted, guest.ended(), guest.waiting.requests), (3, 3, 0));
}

#[test]
fn a_permit_of_a_class_that_is_gone_bore_the_name_of_another() {
    let classes = [class("main", 1), class("guest", 1), class("new", 1)];
    let engine = engine(classes[..2].to_vec(), vec![worker(1)]);
    let held = permit(engine.admit(tokens(1).with_class("guest")).unwrap());
    assert_eq!(engine.class_name(held.class()).as_deref(), Some("guest"));
    engine.reload(profile(classes[..1].to_vec()));
    settled(&engine);
    engine.reload(profile(vec![classes[0].clone(), classes[2].clone()]));
    settled(&engine);
    assert_ne!(engine.class_name(held.class()).as_deref(), Some("new"));
}
