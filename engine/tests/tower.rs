//! The tower layer: whatever becomes of a request, its permit is given back exactly then.

mod threaded;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn, ready};
use std::io::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use threaded::{class, drained, engine, exclusive, permit, settled, until, worker};
use tollgate::tower::{HeldPermit, PermitBody, PermitLayer, PermitService, refuse_by_status, status};
use tollgate::{Booked, Constraints, Engine, Rejected, WorkerId};
use tower::{Layer, Service, ServiceExt, service_fn};

/// What a body does when it is polled.
#[derive(Debug)]
enum Step {
    Data(&'static str),
    Trailers,
    Pending,
    Fail,
}
use Step::{Data, Fail, Pending, Trailers};

/// A body that does these things in order, and then ends.
#[derive(Debug, Default)]
struct Script {
    steps: VecDeque<Step>,
    /// Whether it says that it has ended before it is polled again.
    says_so: bool,
}

impl Script {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), says_so: false }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.steps.pop_front() {
            Some(Data(data)) => Poll::Ready(Some(Ok(Frame::data(data.into())))),
            Some(Trailers) => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
            Some(Fail) => Poll::Ready(Some(Err(Error::other("body")))),
            Some(Pending) => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.says_so && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(77)
    }
}

type Asked = Result<tollgate::Request, Response<Script>>;

/// A request for `cost` tokens in its body.
fn request(cost: u64) -> Request<u64> {
    Request::new(cost)
}

fn ask(request: &Request<u64>) -> Asked {
    Ok(tollgate::Request::new(*request.body(), 0))
}

type Layered<S> = PermitService<S, fn(&Request<u64>) -> Asked, fn(Rejected) -> Response<Script>>;

fn layered<S>(engine: &Engine, inner: S) -> Layered<S> {
    PermitLayer::new(engine.clone(), ask as _, refuse_by_status as _).layer(inner)
}

/// An engine whose only worker takes one request at a time.
fn one_at_a_time() -> Engine {
    engine(vec![exclusive("only", 1)], vec![worker(1)])
}

fn booked(engine: &Engine) -> (u64, u32) {
    let Booked { tokens, permits } = engine.booked()[0].1;
    (tokens, permits)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The response to a request of 300 tokens, with a body of these steps.
async fn response(engine: &Engine, body: impl Fn() -> Script + Clone) -> Response<PermitBody<Script>> {
    let inner = service_fn(move |_: Request<u64>| ready(Ok::<_, Error>(Response::new(body()))));
    layered(engine, inner).oneshot(request(300)).await.unwrap()
}

/// Polls a body once: the data, `trailers`, `failed`, `pending` or `ended`.
fn next(body: &mut PermitBody<Script>) -> String {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => "pending".into(),
        Poll::Ready(None) => "ended".into(),
        Poll::Ready(Some(Err(_))) => "failed".into(),
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) => String::from_utf8(data.to_vec()).unwrap(),
            Err(_) => "trailers".into(),
        },
    }
}

#[tokio::test]
async fn the_first_byte_completes_the_prefill_and_the_end_gives_the_permit_back() {
    let engine = one_at_a_time();
    let steps = || Script::new([Pending, Data(""), Data("a"), Pending, Data("b"), Trailers]);
    let mut body = response(&engine, steps).await.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(77), false));
    let mut seen = Vec::new();
    loop {
        let step = next(&mut body);
        seen.push((step.clone(), booked(&engine)));
        if step == "ended" {
            break;
        }
    }
    let expected = [
        ("pending", (300, 1)),
        ("", (300, 1)),
        ("a", (0, 1)),
        ("pending", (0, 1)),
        ("b", (0, 1)),
        ("trailers", (0, 1)),
        ("ended", (0, 0)),
    ];
    assert_eq!(seen, expected.map(|(step, booked)| (step.to_owned(), booked)));
    assert!(body.permit().is_none());
}

#[tokio::test]
async fn a_body_that_says_it_has_ended_need_not_be_polled_again() {
    let engine = one_at_a_time();
    let says_so = |steps: fn() -> Vec<Step>| move || Script { says_so: true, ..Script::new(steps()) };
    let empty = response(&engine, says_so(Vec::new)).await;
    assert!(empty.body().is_end_stream());
    assert_eq!(booked(&engine), (0, 0));
    let mut body = response(&engine, says_so(|| vec![Data("a"), Data("b")])).await.into_body();
    assert_eq!((next(&mut body), booked(&engine)), ("a".into(), (0, 1)));
    assert_eq!((next(&mut body), booked(&engine)), ("b".into(), (0, 0)));
}

#[tokio::test]
async fn a_body_that_is_dropped_midway_gives_the_permit_back() {
    let engine = one_at_a_time();
    let mut body = response(&engine, || Script::new([Data("a"), Data("b")])).await.into_body();
    assert_eq!((next(&mut body), booked(&engine)), ("a".into(), (0, 1)));
    drop(body);
    assert_eq!(booked(&engine), (0, 0));
    // And one that was never looked at.
    let unread = response(&engine, || Script::new([Data("a")])).await;
    assert_eq!(booked(&engine), (300, 1));
    drop(unread);
    assert_eq!(booked(&engine), (0, 0));
}

#[tokio::test]
async fn a_body_that_fails_gives_the_permit_back() {
    let engine = one_at_a_time();
    let mut body = response(&engine, || Script::new([Pending, Fail, Data("a")])).await.into_body();
    assert_eq!((next(&mut body), booked(&engine)), ("pending".into(), (300, 1)));
    assert_eq!((next(&mut body), booked(&engine)), ("failed".into(), (0, 0)));
}

#[tokio::test]
async fn a_service_that_fails_or_panics_gives_the_permit_back() {
    let engine = one_at_a_time();
    let fails = service_fn(|_: Request<u64>| ready(Err::<Response<Script>, _>(Error::other("inner"))));
    let mut failing = pin!(layered(&engine, fails).call(request(300)));
    assert_eq!(poll_fn(|cx| failing.as_mut().poll(cx)).await.unwrap_err().to_string(), "inner");
    // The future is still there.
    assert_eq!(booked(&engine), (0, 0));

    let panics = service_fn(async |_: Request<u64>| -> Result<Response<Script>, Error> { panic!("inner") });
    let panicking = tokio::spawn(layered(&engine, panics).oneshot(request(300)));
    assert!(panicking.await.unwrap_err().is_panic());
    assert_eq!(booked(&engine), (0, 0));
    drained(&engine);
}

#[test]
fn a_future_that_is_dropped_while_it_waits_cancels_the_request() {
    let engine = one_at_a_time();
    let running = permit(engine.admit(tollgate::Request::new(1, 0)).unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let inner = {
        let calls = calls.clone();
        service_fn(move |_: Request<u64>| {
            calls.fetch_add(1, Ordering::Relaxed);
            ready(Ok::<_, Error>(Response::new(Script::default())))
        })
    };
    let mut waiting = Box::pin(layered(&engine, inner).call(request(300)));
    assert!(poll(waiting.as_mut()).is_pending());
    until(&engine, |picture| picture.classes[0].waiting.requests == 1);
    drop(waiting);
    until(&engine, |picture| picture.classes[0].cancelled == 1);
    drop(running);
    drained(&engine);
    assert_eq!((calls.load(Ordering::Relaxed), settled(&engine).classes[0].dispatched), (0, 1));
}

#[tokio::test]
async fn a_future_that_is_dropped_while_the_service_works_gives_the_permit_back() {
    let engine = one_at_a_time();
    let called = Arc::new(AtomicUsize::new(0));
    let inner = {
        let called = called.clone();
        service_fn(move |_: Request<u64>| {
            called.store(1, Ordering::Relaxed);
            std::future::pending::<Result<Response<Script>, Error>>()
        })
    };
    let mut working = Box::pin(layered(&engine, inner).call(request(300)));
    poll_fn(|cx| {
        assert!(working.as_mut().poll(cx).is_pending());
        if called.load(Ordering::Relaxed) == 1 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    assert_eq!(booked(&engine), (300, 1));
    drop(working);
    assert_eq!(booked(&engine), (0, 0));
}

/// A service that insists on being asked whether it is ready, each clone by itself.
struct Picky {
    asked: Cell<u32>,
    /// How often it says no first.
    busy: u32,
    fails: bool,
    total: Arc<AtomicUsize>,
}

impl Clone for Picky {
    fn clone(&self) -> Self {
        Self { asked: Cell::new(0), total: self.total.clone(), ..*self }
    }
}

impl Service<Request<u64>> for Picky {
    type Response = Response<Script>;
    type Error = Error;
    type Future = std::future::Ready<Result<Self::Response, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.asked.set(self.asked.get() + 1);
        match (self.asked.get() > self.busy, self.fails) {
            (true, false) => Poll::Ready(Ok(())),
            (true, true) => Poll::Ready(Err(Error::other("not ready"))),
            (false, _) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn call(&mut self, _: Request<u64>) -> Self::Future {
        assert!(self.asked.get() > self.busy, "called without being ready");
        self.asked.set(0);
        ready(Ok(Response::new(Script::default())))
    }
}

#[tokio::test]
async fn requests_are_taken_in_whether_or_not_the_service_is_ready_and_it_is_asked_with_the_permit() {
    let engine = one_at_a_time();
    let total = Arc::new(AtomicUsize::new(0));
    let picky = |fails| Picky { asked: Cell::new(0), busy: 3, fails, total: total.clone() };
    let running = engine.admit(tollgate::Request::new(1, 0)).unwrap().await.unwrap();
    let mut service = layered(&engine, picky(false));
    let is_ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(is_ready, Poll::Ready(Ok(()))));
    let mut first = Box::pin(service.call(request(300)));
    assert!(poll(first.as_mut()).is_pending());
    until(&engine, |picture| picture.classes[0].waiting.requests == 1);
    assert!(poll(first.as_mut()).is_pending());
    assert_eq!(total.load(Ordering::Relaxed), 0);
    drop(running);
    first.await.unwrap();
    assert_eq!(total.load(Ordering::Relaxed), 4);

    let mut failing = Box::pin(layered(&engine, picky(true)).call(request(300)));
    let error = poll_fn(|cx| failing.as_mut().poll(cx)).await.err().unwrap();
    assert_eq!((error.to_string().as_str(), booked(&engine)), ("not ready", (0, 0)));
    assert_eq!(total.load(Ordering::Relaxed), 8);
}

#[tokio::test]
async fn refusals_are_turned_into_responses() {
    let mut never_queues = exclusive("only", 1);
    never_queues.limits.requests = Some(0);
    let engine = engine(vec![never_queues], vec![worker(1)]);
    let never = service_fn(async |_: Request<u64>| -> Result<Response<Script>, Error> {
        panic!("a refused request goes nowhere")
    });
    let running = engine.admit(tollgate::Request::new(1, 0)).unwrap().await.unwrap();
    let refused = layered(&engine, never).oneshot(request(300)).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.body().permit().is_none()), (529, true));

    let says_why = |Rejected { reason, request }: Rejected| {
        let answer = Response::builder().status(status(&reason));
        answer
            .header("x-reason", reason.code())
            .header("x-tokens", request.raw_isl_tokens)
            .body(Script::new([Data("no")]))
            .unwrap()
    };
    let says_why = PermitLayer::new(engine.clone(), ask, says_why).layer(never);
    let refused = says_why.clone().oneshot(request(300)).await.unwrap();
    assert_eq!(refused.headers()["x-reason"], "queue_limit_requests");
    assert_eq!(refused.headers()["x-tokens"], "300");
    assert_eq!(next(&mut refused.into_body()), "no");

    // What is wrong in front of the engine never gets into it.
    let bad = |_: &Request<u64>| -> Asked {
        Err(Response::builder().status(StatusCode::BAD_REQUEST).body(Script::default()).unwrap())
    };
    let bad = PermitLayer::new(engine.clone(), bad, refuse_by_status::<Script>).layer(never);
    assert_eq!(bad.oneshot(request(300)).await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(settled(&engine).classes[0].submitted, 3);

    // One that is refused at once.
    engine.close();
    let closed = says_why.oneshot(request(300)).await.unwrap();
    assert_eq!((closed.status().as_u16(), closed.headers()["x-reason"].to_str().unwrap()), (503, "closed"));
    drop(running);
}

#[tokio::test]
async fn class_and_constraints_are_those_of_the_request_and_the_service_finds_the_permit() {
    let engine = engine(vec![class("a", 1), class("b", 1)], vec![worker(1), worker(2)]);
    let ask = |request: &Request<u64>| -> Asked {
        let header = |name: &str| request.headers()[name].to_str().unwrap();
        let worker = WorkerId(header("x-worker").parse().unwrap());
        Ok(tollgate::Request {
            constraints: Some(Arc::new(Constraints::new(Some(vec![worker]), vec![]))),
            ..tollgate::Request::new(*request.body(), 0).with_class(header("x-class"))
        })
    };
    let (keep, kept) = std::sync::mpsc::channel();
    let inner = service_fn(move |request: Request<u64>| {
        let permit = request.extensions().get::<HeldPermit>().unwrap();
        keep.send(permit.clone()).unwrap();
        ready(Ok::<_, Error>(Response::new(Script::new([Pending]))))
    });
    let service = PermitLayer::new(engine.clone(), ask, refuse_by_status::<Script>).layer(inner);
    for (class, worker) in [("a", "2"), ("b", "1")] {
        let request = Request::builder().header("x-class", class).header("x-worker", worker);
        let response = service.clone().oneshot(request.body(300).unwrap()).await.unwrap();
        let permit = kept.recv().unwrap();
        assert_eq!(permit.endpoint().worker.to_string(), worker);
        assert_eq!(engine.class_name(permit.class()).as_deref(), Some(class));
        assert_eq!(permit.cost(), 300);
        let held = response.body().permit().unwrap();
        assert_eq!((held.waited(), held.is_released()), (permit.waited(), false));
        // The service may know of the first token before there is a byte.
        permit.prefill_complete();
        let tokens = |engine: &Engine| engine.booked().iter().map(|(_, b)| b.tokens).sum::<u64>();
        assert_eq!(tokens(&engine), 0);
        // Whoever keeps it keeps no place.
        drop(response);
        assert!(permit.is_released());
        permit.prefill_complete();
        drained(&engine);
    }
}

#[test]
fn a_future_used_up_says_so() {
    let engine = one_at_a_time();
    let inner = service_fn(|_: Request<u64>| ready(Ok::<_, Error>(Response::new(Script::default()))));
    engine.close();
    let mut answered = Box::pin(layered(&engine, inner).call(request(1)));
    assert!(poll(answered.as_mut()).is_ready());
    assert!(catch_unwind(AssertUnwindSafe(|| poll(answered.as_mut()).is_ready())).is_err());
}
