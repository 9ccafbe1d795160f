//! A request on its way to a worker, and the answer on its way back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use tollgate::Permit;

use super::Shared;
use super::ask::Ask;
use super::error::ApiError;
use super::metrics::InFlight;
use super::pool::{Place, Pool};
use super::relay::{Broken, End, Held, relay};
use super::workers::{Event, Fault, Worker};

/// Headers that are for one connection (RFC 9110, 7.6.1), and what is long done when a request is sent on.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Answers up to this size \[bytes\] are read whole before they are passed on, if the worker says how long they are.
const WHOLE: u64 = 64 << 10;

/// Longest pause that a worker can ask for.
const LONGEST_PAUSE: u32 = 60;

/// Workers that a request is taken to, as long as nobody is there.
const TRIES: usize = 3;

/// Waits for a worker, sends the request there, and passes the answer on.
pub(crate) async fn forward(
    shared: &Arc<Shared>,
    pool: &Arc<Pool>,
    ask: Ask,
    head: Parts,
    body: Bytes,
    in_flight: InFlight,
) -> Result<Response<Body>, ApiError> {
    let (mut tried, mut among) = (Vec::new(), None);
    loop {
        let Place { permit, worker } = pool.place(&ask, among.as_ref()).await?;
        let limits = &shared.options.workers;
        let sent = Instant::now();
        let answer = shared.client.request(request(&worker, &head, body.clone()));
        let gone = match timeout(limits.response_timeout, answer).await {
            Ok(Ok(response)) => {
                shared.metrics.first_byte.observe(sent.elapsed().as_secs_f64());
                let held = Holding {
                    shared: shared.clone(),
                    pool: pool.clone(),
                    worker,
                    permit: Some(permit),
                    ask,
                    sse: false,
                    in_flight,
                };
                return answered(held, response).await;
            }
            Ok(Err(error)) if error.is_connect() => Fault::of(&error),
            Ok(Err(error)) => {
                shared.metrics.ended("broken");
                let message = format!("worker {} broke off: {}", worker.id, Fault::of(&error).message);
                return Err(ApiError::new(502, "worker_failed", message));
            }
            Err(_) => {
                shared.metrics.ended("silent");
                let message =
                    format!("worker {} did not answer within {:?}", worker.id, limits.response_timeout);
                return Err(ApiError::new(504, "worker_timeout", message));
            }
        };
        // Nothing was sent: another worker may have it.
        drop(permit);
        shared.metrics.ended("unreachable");
        if let Some(session) = &ask.session {
            pool.sessions.leave(session, worker.id);
        }
        let message = format!("worker {} cannot be reached: {}", worker.id, gone.message);
        shared.report(Event::Gone { worker: worker.id, fault: gone });
        tried.push(worker.id);
        // The engine may not know yet.
        among = pool.others(&tried);
        if among.is_none() || tried.len() == TRIES {
            return Err(ApiError {
                retry_after: Some(1),
                ..ApiError::new(502, "worker_unreachable", message)
            });
        }
    }
}

/// The same request for a worker.
fn request(worker: &Worker, head: &Parts, body: Bytes) -> Request<Full<Bytes>> {
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = worker.url.join(&path);
    *request.headers_mut() = head.headers.clone();
    strip(request.headers_mut());
    for name in [header::HOST, header::EXPECT, header::CONTENT_LENGTH] {
        request.headers_mut().remove(name);
    }
    request
}

/// Takes out what is for one connection only.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Passes an answer on.
async fn answered(mut held: Holding, response: Response<Incoming>) -> Result<Response<Body>, ApiError> {
    let (mut head, body) = response.into_parts();
    strip(&mut head.headers);
    if matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        let pause = Duration::from_secs(pause(&head.headers).into());
        held.shared.report(Event::Overloaded { worker: held.worker.id, pause });
    }
    held.mark(&mut head.headers);
    let timeouts = (held.shared.options.workers.idle_timeout, held.shared.options.limits.stall_timeout);
    let content_type = head.headers.get(header::CONTENT_TYPE);
    held.sse = content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if body.size_hint().exact().is_none_or(|size| size > WHOLE) {
        if !head.status.is_success() {
            held.ask.prompt.chains.clear();
        }
        return Ok(Response::from_parts(head, relay(body, held, timeouts.0, timeouts.1)));
    }
    if head.status.is_success() {
        held.first_token();
    }
    let whole = match timeout(timeouts.0, body.collect()).await {
        Ok(Ok(whole)) => whole.to_bytes(),
        Ok(Err(error)) => {
            held.end(End::Broken);
            return Err(ApiError::new(
                502,
                "worker_failed",
                format!("worker {} broke off: {error}", held.worker.id),
            ));
        }
        Err(_) => {
            held.end(End::Silent);
            return Err(ApiError::new(504, "worker_timeout", held.silent()));
        }
    };
    held.end(End::Whole);
    Ok(Response::from_parts(head, whole.into()))
}

/// How long a worker wants to be left alone \[s\].
fn pause(headers: &HeaderMap) -> u32 {
    let asked = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    asked.unwrap_or(1).clamp(1, LONGEST_PAUSE)
}

/// What a request holds while its answer is on its way.
struct Holding {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    worker: Arc<Worker>,
    permit: Option<Permit>,
    ask: Ask,
    /// The answer is a stream of events.
    sse: bool,
    #[expect(dead_code, reason = "counts as long as it lives")]
    in_flight: InFlight,
}

impl Holding {
    /// Says where the request was.
    fn mark(&self, headers: &mut HeaderMap) {
        let Some(permit) = &self.permit else { return };
        let mut set = |name, value: HeaderValue| headers.insert(HeaderName::from_static(name), value);
        set("x-tollgate-worker", self.worker.id.0.into());
        set("x-tollgate-waited-ms", (permit.waited().as_millis() as u64).into());
        let class = self.pool.engine.class_name(permit.class());
        if let Some(class) = class.and_then(|class| HeaderValue::from_str(&class).ok()) {
            set("x-tollgate-class", class);
        }
    }

    /// The prompt is prefilled, and cached from now on.
    fn first_token(&mut self) {
        if let Some(permit) = &mut self.permit
            && permit.booked_tokens() > 0
        {
            permit.prefill_complete();
        }
        self.worker.prefix.insert(&std::mem::take(&mut self.ask.prompt));
    }

    fn silent(&self) -> String {
        let limit = self.shared.options.workers.idle_timeout;
        format!("worker {} said nothing for {limit:?}", self.worker.id)
    }
}

impl Held for Holding {
    fn data(&mut self, data: &Bytes) {
        // Comments of an event stream keep the connection open before there is a token.
        let comment = self.sse && data.starts_with(b":");
        if !comment && !self.ask.prompt.chains.is_empty() {
            self.first_token();
        }
    }

    fn end(&mut self, end: End) -> Option<Result<Bytes, Broken>> {
        self.permit = None;
        // It was in use until now.
        if let Some(session) = &self.ask.session {
            self.pool.sessions.used(session, self.worker.id, Instant::now());
        }
        let (word, error) = match end {
            End::Whole => ("whole", None),
            End::Client => ("client", None),
            End::Broken => {
                let message = format!("worker {} broke off", self.worker.id);
                ("broken", Some(ApiError::new(502, "worker_failed", message)))
            }
            End::Silent => ("silent", Some(ApiError::new(504, "worker_timeout", self.silent()))),
        };
        self.shared.metrics.ended(word);
        // The status is long sent. A reader of events is told by an event, others by a broken connection.
        error.map(|error| match self.sse {
            true => Ok(format!("data: {}\n\n", error.to_json()).into()),
            false => Err(error.message.into()),
        })
    }
}
