//! One span for each request, from `admit` to the end of its permit.

mod threaded;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use threaded::{answer, class, engine, exclusive, permit, settled, until, worker};
use tollgate::{ClassChoice, Engine, Idle, Pin, Request, WorkerId, WorkerSnapshot};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// What was recorded of one span.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    name: String,
    parent: Option<String>,
    fields: BTreeMap<String, String>,
    closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let twice = self.fields.insert(field.name().into(), format!("{value:?}"));
        assert_eq!(twice, None, "{} is recorded once", field.name());
    }
}

/// Writes down every span, in the order of their beginnings.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<(Id, Seen)>>>);

impl Ledger {
    fn on(&self, id: &Id, f: impl FnOnce(&mut Seen)) {
        let mut spans = self.0.lock().unwrap();
        // Numbers are used again.
        f(&mut spans.iter_mut().rev().find(|(other, _)| other == id).unwrap().1);
    }

    fn spans(&self) -> Vec<Seen> {
        self.0.lock().unwrap().iter().map(|(_, seen)| seen.clone()).collect()
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ledger {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let metadata = attributes.metadata();
        assert_eq!(metadata.target() == "tollgate", metadata.name() == "request");
        let mut seen = Seen { name: metadata.name().into(), ..Seen::default() };
        seen.parent = cx.span(id).unwrap().parent().map(|parent| parent.name().into());
        attributes.record(&mut seen);
        self.0.lock().unwrap().push((id.clone(), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.on(id, |seen| values.record(seen));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.on(&id, |seen| seen.closed = true);
    }
}

/// Runs `f` with a ledger for the calling thread.
fn traced(f: impl FnOnce(&Ledger)) {
    let ledger = Ledger::default();
    tracing::subscriber::with_default(Registry::default().with(ledger.clone()), || f(&ledger));
}

fn fields<const N: usize>(fields: [(&str, &str); N]) -> BTreeMap<String, String> {
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[test]
fn a_dispatched_request_has_one_span_that_ends_with_its_permit() {
    traced(|ledger| {
        let engine = engine(vec![class("a", 1), class("b", 1)], vec![worker(7)]);
        let handler = tracing::info_span!("handler");
        let mut permit =
            handler.in_scope(|| permit(engine.admit(Request::new(300, 100).with_class("b")).unwrap()));
        let waited = format!("{:?}", permit.waited().as_secs_f64());
        permit.span().in_scope(|| drop(tracing::info_span!("upstream")));
        permit.prefill_complete();
        let [_, request, upstream] = &ledger.spans()[..] else { panic!("{:?}", ledger.spans()) };
        assert_eq!((request.name.as_str(), request.parent.as_deref()), ("request", Some("handler")));
        assert_eq!((upstream.name.as_str(), upstream.parent.as_deref()), ("upstream", Some("request")));
        let told = fields([
            ("class", "\"b\""),
            ("cost", "200"),
            ("waited_seconds", &waited),
            ("endpoint", "7/0"),
            ("outcome", "\"dispatched\""),
        ]);
        assert_eq!(request.fields, told);
        assert!(!request.closed);
        // The end of a permit may be on any thread.
        std::thread::spawn(|| drop(permit)).join().unwrap();
        assert!(ledger.spans()[1].closed);
    });
}

#[test]
fn whatever_else_becomes_of_a_request_is_the_outcome_of_its_span() {
    traced(|ledger| {
        let mut bounded = exclusive("a", 1);
        bounded.limits.requests = Some(1);
        let engine = engine(vec![bounded], vec![worker(1)]);
        let running = permit(engine.admit(Request::new(1, 0)).unwrap());
        let waits = engine.admit(Request::new(2, 0)).unwrap();
        until(&engine, |picture| picture.classes[0].waiting.requests == 1);
        let ends = |request| drop(engine.admit(request).and_then(answer).unwrap_err());
        ends(Request::new(3, 0));
        ends(Request { deadline: Some(Duration::ZERO), ..Request::new(4, 0) });
        ends(Request { priority_jump: f64::NAN, ..Request::new(5, 0) });
        drop(waits);
        until(&engine, |picture| picture.classes[0].cancelled == 1);
        let deadline = Some(Duration::from_millis(1));
        ends(Request { deadline, ..Request::new(6, 0) });
        drop(running);
        ends(Request { pin: Some(Pin { worker: WorkerId(9), rank: None }), ..Request::new(7, 0) });
        // Its permit is there, and nobody has taken it.
        let unclaimed = engine.admit(Request::new(8, 0)).unwrap();
        settled(&engine);
        drop(unclaimed);
        engine.close();
        ends(Request::new(9, 0));

        let spans = ledger.spans();
        assert!(spans.iter().all(|span| span.closed && span.name == "request"), "{spans:#?}");
        let field = |span: &Seen, name: &str| span.fields.get(name).cloned().unwrap_or_default();
        let told: Vec<_> = spans.iter().map(|span| (field(span, "cost"), field(span, "outcome"))).collect();
        let expected = [
            ("1", "dispatched"),
            ("2", "cancelled"),
            ("3", "queue_limit_requests"),
            ("4", "deadline_exceeded"),
            // It never got as far as a class and a cost.
            ("", "invalid_request"),
            ("6", "deadline_exceeded"),
            ("7", "pinned_worker_unavailable"),
            ("8", "cancelled"),
            ("", "closed"),
        ];
        let expected = expected.map(|(cost, outcome)| (cost.to_owned(), format!("{outcome:?}")));
        assert_eq!(told, expected);
        let waited: f64 = field(&spans[5], "waited_seconds").parse().unwrap();
        assert!(waited >= 0.001, "{waited}");
        assert!(spans.iter().skip(1).all(|span| !span.fields.contains_key("endpoint")));
    });
}

#[test]
fn behind_the_tower_layer_the_span_is_that_of_the_response() {
    use std::future::ready;

    use http::{Request, Response};
    use tollgate::tower::{HeldPermit, PermitLayer, refuse_by_status};
    use tower::{Layer, Service, service_fn};

    traced(|ledger| {
        let engine = engine(vec![class("a", 1)], vec![worker(1)]);
        let inner = service_fn(|request: Request<String>| {
            let permit = request.extensions().get::<HeldPermit>().unwrap().clone();
            permit.span().in_scope(|| drop(tracing::info_span!("upstream")));
            ready(Ok::<_, std::io::Error>(Response::new("answer".to_owned())))
        });
        let ask = |_: &Request<String>| Ok(tollgate::Request::new(1, 0));
        let mut service = PermitLayer::new(engine, ask, refuse_by_status::<String>).layer(inner);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let response = runtime.block_on(service.call(Request::new(String::new()))).unwrap();
        let [request, upstream] = &ledger.spans()[..] else { panic!("{:?}", ledger.spans()) };
        assert_eq!((request.closed, upstream.parent.as_deref()), (false, Some("request")));
        let permit = response.body().permit().unwrap().clone();
        drop(response);
        assert!(ledger.spans()[0].closed);
        assert!(permit.span().is_none());
    });
}

#[test]
fn a_future_has_the_same_span_wherever_it_is_polled() {
    traced(|ledger| {
        let engine = engine(vec![class("a", 1)], vec![worker(1)]);
        let admission = engine.admit(Request::new(1, 0)).unwrap();
        std::thread::spawn(move || drop(answer(admission).unwrap())).join().unwrap();
        let spans = ledger.spans();
        assert_eq!(spans.len(), 1);
        assert_eq!((spans[0].fields["outcome"].as_str(), spans[0].closed), ("\"dispatched\"", true));
    });
}

/// Panics the first time that anything is recorded.
#[derive(Clone, Default)]
struct Panics(Arc<Mutex<bool>>);

impl<S: tracing::Subscriber> Layer<S> for Panics {
    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        let has_panicked = std::mem::replace(&mut *self.0.lock().unwrap(), true);
        assert!(has_panicked, "a subscriber of the caller's");
    }
}

#[test]
fn a_subscriber_that_panics_does_so_at_its_caller_and_the_engine_goes_on() {
    for idle in [Idle::Backoff, Idle::Assist] {
        let engine = Engine::builder(threaded::profile(vec![class("a", 1)]))
            .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
            .idle(idle)
            .start()
            .unwrap();
        for _ in 0..20 {
            // The arbiter goes to sleep, most probably.
            std::thread::sleep(Duration::from_millis(1));
            let subscriber = Registry::default().with(Panics::default());
            let admitted = tracing::subscriber::with_default(subscriber, || {
                catch_unwind(AssertUnwindSafe(|| engine.admit(Request::new(1, 0))))
            });
            assert!(admitted.is_err());
            drop(permit(engine.admit(Request::new(1, 0)).unwrap()));
        }
        threaded::drained(&engine);
    }
}

type Meanwhile = Box<dyn FnOnce() + Send>;

/// Does something the first time that anything is recorded: between the look at the policy and the queue.
struct First(Mutex<Option<Meanwhile>>);

impl<S: tracing::Subscriber> Layer<S> for First {
    fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
        let first = self.0.lock().unwrap().take();
        if let Some(first) = first {
            first();
        }
    }
}

#[test]
fn a_guard_that_panics_over_a_second_look_does_so_at_its_caller_and_nothing_stays() {
    for panics in [false, true] {
        let looks = Arc::new(Mutex::new(0));
        let guard = {
            let looks = looks.clone();
            move |_: &Request| {
                *looks.lock().unwrap() += 1;
                assert!(!panics || *looks.lock().unwrap() == 1, "a guard of the caller's");
                ClassChoice::AsAsked
            }
        };
        let engine = Engine::builder(threaded::profile(vec![class("a", 1), class("b", 1)]))
            .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
            .class_guard(guard)
            .start()
            .unwrap();
        let meanwhile = {
            let engine = engine.clone();
            move || {
                engine.reload(threaded::profile(vec![class("a", 1)]));
                until(&engine, |picture| picture.classes.len() == 1);
                settled(&engine);
            }
        };
        let tenant: Arc<str> = "t".into();
        let request = Request { tenant: Some(tenant.clone()), ..Request::new(1, 0).with_class("b") };
        let first = First(Mutex::new(Some(Box::new(meanwhile))));
        let admitted = tracing::subscriber::with_default(Registry::default().with(first), || {
            catch_unwind(AssertUnwindSafe(|| engine.admit(request)))
        });
        assert_eq!((admitted.is_err(), *looks.lock().unwrap()), (panics, 2));
        if let Ok(admission) = admitted {
            drop(permit(admission.unwrap()));
        }
        drop(permit(engine.admit(Request::new(1, 0)).unwrap()));
        let picture = settled(&engine);
        assert_eq!(
            (picture.classes[0].submitted, picture.classes[0].cancelled),
            (if panics { 1 } else { 2 }, 0)
        );
        threaded::drained(&engine);
        assert_eq!(Arc::strong_count(&tenant), 1, "the request is gone");
    }
}
