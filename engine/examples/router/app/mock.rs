//! A worker that computes nothing: it takes the time that a real one would, for prompts that it has not cached.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::ask::{Ask, Endpoint};
use super::error::ApiError;
use super::options::{MockOptions, RequestOptions};
use super::prefix::PrefixIndex;
use super::prompt::{BytesPerToken, Measure};
use super::relay::channel;
use super::workers::WorkerUrl;

/// Tokens that are put out when nobody says how many, as in OpenAI's older API.
const OUTPUT_TOKENS: u64 = 16;
/// Whatever somebody asks for.
const MOST_OUTPUT_TOKENS: u64 = 65_536;
/// Numbers of an embedding.
const DIMENSIONS: usize = 4;

/// A built-in worker. Dropping it kills it, and all of its connections.
pub(crate) struct Mock {
    addr: SocketAddr,
    task: AbortHandle,
}

impl Mock {
    /// Starts one on a free port.
    pub(crate) async fn start(options: &MockOptions, requests: &RequestOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        Self::on(listener, options, requests)
    }

    /// Starts one on this port.
    pub(crate) fn on(
        listener: TcpListener,
        options: &MockOptions,
        requests: &RequestOptions,
    ) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let counter = Box::new(BytesPerToken(requests.bytes_per_token));
        let worker = Arc::new(Worker {
            slots: Arc::new(Semaphore::new(options.mock_slots as usize)),
            cache: PrefixIndex::new(options.mock_cache / requests.block_tokens),
            measure: Measure::new(counter, requests.block_tokens, requests.bytes_per_token),
            options: options.clone(),
            requests: requests.clone(),
            served: AtomicU64::new(0),
        });
        let mut app = Router::new().route("/health", get(|| async {})).route("/v1/models", get(models));
        for endpoint in [Endpoint::Completions, Endpoint::Chat, Endpoint::Embeddings] {
            let serve = move |State(worker): State<Arc<Worker>>, request: Request| async move {
                serve(&worker, endpoint, request).await.unwrap_or_else(IntoResponse::into_response)
            };
            app = app.route(endpoint.path(), post(serve));
        }
        let app = app.with_state(worker);
        Ok(Self { addr, task: super::server::bare(listener, app) })
    }

    pub(crate) fn url(&self) -> WorkerUrl {
        format!("http://{}", self.addr).parse().expect("an address is a URL")
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Worker {
    slots: Arc<Semaphore>,
    cache: PrefixIndex,
    measure: Measure,
    options: MockOptions,
    requests: RequestOptions,
    served: AtomicU64,
}

async fn models(State(worker): State<Arc<Worker>>) -> Json<Value> {
    let model =
        json!({ "id": worker.options.mock_model, "object": "model", "created": 0, "owned_by": "mock" });
    Json(json!({ "object": "list", "data": [model] }))
}

async fn serve(worker: &Arc<Worker>, endpoint: Endpoint, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let body =
        body.collect().await.map_err(|error| ApiError::new(400, "invalid_request", error.to_string()))?;
    let ask = Ask::read(endpoint, &head.headers, &body.to_bytes(), &worker.requests, &worker.measure)?;
    if ask.model != worker.options.mock_model {
        return Err(ApiError::new(404, "model_not_found", format!("there is no model {:?}", ask.model)));
    }
    let work = Work { worker: worker.clone(), endpoint, ask };
    if !work.ask.stream || endpoint == Endpoint::Embeddings {
        let mut running = work.begin().await;
        let mut text = String::new();
        while let Some(token) = running.token().await {
            text.push_str(token);
        }
        return Ok(Json(work.whole(&text, &running)).into_response());
    }
    let (events, body) = channel(1, SizeHint::default());
    let closed = events.clone();
    tokio::spawn(async move {
        let send = async |event: Value| events.send(Ok(frame(&event.to_string()))).await;
        let stream = async {
            let mut running = work.begin().await;
            while let Some(token) = running.token().await {
                send(work.event(&running, Some(token))).await?;
            }
            send(work.event(&running, None)).await?;
            events.send(Ok(frame("[DONE]"))).await
        };
        // The slot is free as soon as nobody listens.
        tokio::select! {
            _ = stream => {}
            () = closed.closed() => {}
        }
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// An event of a stream.
fn frame(data: &str) -> Frame<Bytes> {
    Frame::data(format!("data: {data}\n\n").into())
}

/// A request to the worker.
struct Work {
    worker: Arc<Worker>,
    endpoint: Endpoint,
    ask: Ask,
}

/// A request in its slot.
struct Running {
    _slot: OwnedSemaphorePermit,
    id: u64,
    created: u64,
    cached: u64,
    /// Tokens put out, and to be put out.
    done: u64,
    outputs: u64,
    /// When the next one is there.
    next: Instant,
    step: Duration,
}

impl Running {
    /// The next token, when it is there.
    async fn token(&mut self) -> Option<&'static str> {
        if self.done == self.outputs {
            return None;
        }
        at(self.next).await;
        self.next += self.step;
        self.done += 1;
        Some(" token")
    }
}

/// Waits for a point in time. The runtime's own clock would take up to a millisecond for one that is over.
async fn at(when: Instant) {
    if when > Instant::now() {
        sleep_until(when).await;
    }
}

impl Work {
    /// Waits for a slot, and for the prompt to be taken in.
    async fn begin(&self) -> Running {
        let Worker { slots, cache, options, .. } = &*self.worker;
        let slot = slots.clone().acquire_owned().await.expect("slots are never closed");
        let prompt = &self.ask.prompt;
        let cached = cache.cached(prompt).min(prompt.tokens());
        let prefill = (prompt.tokens() - cached) as f64 / options.mock_prefill;
        let next = Instant::now() + Duration::from_secs_f64(prefill);
        at(next).await;
        cache.insert(prompt);
        let outputs = match self.endpoint {
            Endpoint::Embeddings => 0,
            _ => self.ask.max_tokens.unwrap_or(OUTPUT_TOKENS).min(MOST_OUTPUT_TOKENS),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Running {
            _slot: slot,
            id: self.worker.served.fetch_add(1, Ordering::Relaxed),
            created: now.map_or(0, |now| now.as_secs()),
            cached,
            done: 0,
            outputs,
            next,
            step: Duration::from_secs_f64(1.0 / options.mock_decode),
        }
    }

    fn described(&self, running: &Running, object: &str, choices: Value) -> Value {
        let prefix = if self.endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
        json!({
            "id": format!("{prefix}-{}", running.id),
            "object": object,
            "created": running.created,
            "model": self.ask.model,
            "choices": choices,
        })
    }

    fn usage(&self, running: &Running) -> Value {
        let prompt = self.ask.prompt.tokens();
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": running.done,
            "total_tokens": prompt + running.done,
            "prompt_tokens_details": { "cached_tokens": running.cached },
        })
    }

    /// An event with a token, or the last one.
    fn event(&self, running: &Running, token: Option<&str>) -> Value {
        let reason = if token.is_some() { Value::Null } else { "length".into() };
        let mut event = match self.endpoint {
            Endpoint::Chat => {
                let delta = match token {
                    Some(token) if running.done == 1 => json!({ "role": "assistant", "content": token }),
                    Some(token) => json!({ "content": token }),
                    None => json!({}),
                };
                let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
                self.described(running, "chat.completion.chunk", json!([choice]))
            }
            _ => {
                let text = token.unwrap_or("");
                let choice = json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason });
                self.described(running, "text_completion", json!([choice]))
            }
        };
        if token.is_none() {
            event["usage"] = self.usage(running);
        }
        event
    }

    /// The whole answer at once.
    fn whole(&self, text: &str, running: &Running) -> Value {
        let mut whole = match self.endpoint {
            Endpoint::Embeddings => {
                let numbers = vec![0.5; DIMENSIONS];
                let embedding =
                    |index| json!({ "object": "embedding", "index": index, "embedding": numbers });
                let data: Vec<_> = (0..self.ask.prompt.chains.len()).map(embedding).collect();
                json!({ "object": "list", "model": self.ask.model, "data": data })
            }
            Endpoint::Chat => {
                let message = json!({ "role": "assistant", "content": text });
                let choice = json!({ "index": 0, "message": message, "finish_reason": "length" });
                self.described(running, "chat.completion", json!([choice]))
            }
            Endpoint::Completions => {
                let choice = json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": "length" });
                self.described(running, "text_completion", json!([choice]))
            }
        };
        whole["usage"] = self.usage(running);
        whole
    }
}
