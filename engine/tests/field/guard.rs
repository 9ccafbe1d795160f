//! Callers that ask for a class that is not theirs.

use tollgate::{ClassChoice, ClassTable, Engine, Reason, Request, WorkerSnapshot};

use crate::common::tokens;
use crate::threaded::{answer, at_rest, class, exclusive, permit, profile, worker};

fn asking(tenant: Option<&str>, class: Option<&str>) -> Request {
    Request { tenant: tenant.map(Into::into), class: class.map(Into::into), ..tokens(10) }
}

#[test]
fn a_tenant_took_a_class_that_was_not_its_own() {
    let table = ClassTable::new(["regular"]).tenant("acme", ["premium", "regular"]).tenant("banned", [""; 0]);
    let cases = [
        (Some("acme"), Some("premium"), "premium", false),
        (Some("acme"), None, "default", false),
        (Some("acme"), Some("batch"), "default", true),
        (Some("other"), Some("premium"), "default", true),
        (Some("other"), Some("regular"), "regular", false),
        (None, Some("premium"), "default", true),
        (None, Some("regular"), "regular", false),
        (Some("banned"), Some("regular"), "default", true),
        (Some("banned"), None, "default", false),
        (None, Some("no such class"), "default", true),
    ];
    for instead in [None, Some("batch")] {
        let table = instead.iter().fold(table.clone(), |table, class| table.instead(*class));
        let classes = ["default", "regular", "premium", "batch"].map(|name| class(name, 1));
        let engine = Engine::builder(profile(classes.into()))
            .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
            .class_guard(table)
            .start()
            .unwrap();
        for (tenant, asked, expected, clamped) in cases {
            let permit = permit(engine.admit(asking(tenant, asked)).unwrap());
            let expected = if clamped { instead.unwrap_or(expected) } else { expected };
            let got = engine.class_name(permit.class());
            assert_eq!(got.as_deref(), Some(expected), "{tenant:?} asks for {asked:?}");
        }
        let clamped = cases.iter().filter(|case| case.3).count() as u64;
        assert_eq!(at_rest(&engine).clamped, clamped);
    }
}

#[test]
fn a_refused_request_came_back_with_another_class_than_it_asked_for() {
    let mut default = exclusive("default", 1);
    default.limits.requests = Some(0);
    let engine = Engine::builder(profile(vec![default, class("premium", 1)]))
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .class_guard(|request: &Request| match request.tenant.as_deref() {
            Some("acme") => ClassChoice::AsAsked,
            _ => ClassChoice::Default,
        })
        .start()
        .unwrap();
    let _plug = permit(engine.admit(asking(None, None)).unwrap());
    let rejected = answer(engine.admit(asking(None, Some("premium"))).unwrap()).unwrap_err();
    let Reason::QueueLimit(at) = &rejected.reason else { panic!("{rejected}") };
    assert_eq!((&*at.class, rejected.request), ("default", asking(None, Some("premium"))));
    let premium = permit(engine.admit(asking(Some("acme"), Some("premium"))).unwrap());
    assert_eq!(engine.class_name(premium.class()).as_deref(), Some("premium"));
    engine.close();
    engine.join();
    let closed = engine.admit(asking(None, Some("premium"))).unwrap_err();
    assert_eq!(closed.request, asking(None, Some("premium")));
    assert_eq!(engine.snapshot().clamped, 1);
}

#[test]
fn a_guard_that_panicked_left_a_request_behind() {
    let engine = Engine::builder(profile(vec![class("default", 1)]))
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .class_guard(|request: &Request| match request.tenant {
            None => std::panic::resume_unwind(Box::new("no tenant")),
            Some(_) => ClassChoice::AsAsked,
        })
        .start()
        .unwrap();
    for _ in 0..3 {
        let admit = std::panic::AssertUnwindSafe(|| engine.admit(asking(None, Some("default"))));
        assert!(std::panic::catch_unwind(admit).is_err());
        drop(permit(engine.admit(asking(Some("acme"), Some("default"))).unwrap()));
    }
    assert_eq!(at_rest(&engine).classes[0].submitted, 3);
}

/// The class that the guard gives comes and goes, so that some requests have to look twice.
#[test]
fn a_request_that_had_to_look_twice_was_clamped_twice() {
    const THREADS: u64 = 4;
    const EACH: u64 = 10_000;
    let classes = [class("default", 1), class("guest", 1)];
    let [with, without] = [2, 1].map(|n| std::sync::Arc::new(profile(classes[..n].to_vec())));
    let engine = Engine::builder(with.clone())
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .class_guard(|_: &Request| ClassChoice::Instead("guest".into()))
        .start()
        .unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        drop(permit(engine.admit(asking(None, Some("premium"))).unwrap()));
                    }
                })
            })
            .collect();
        let mut reloads = 0;
        while !threads.iter().all(|t| t.is_finished()) {
            engine.reload(if reloads % 2 == 0 { &without } else { &with }.clone());
            engine.snapshot();
            reloads += 1;
        }
    });
    assert_eq!(engine.snapshot().clamped, THREADS * EACH);
}
