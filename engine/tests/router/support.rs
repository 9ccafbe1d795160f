//! Clients, workers that misbehave, and a router between them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::app::{Options, Router, StartError};

/// Far longer than anything here takes: a test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A test with an end.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_for(PATIENCE * 2, test);
}

pub(crate) fn run_for(limit: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { within(limit, test).await.expect("the test hangs") });
}

/// What `done` comes to, if it does within `limit`. Counted in short sleeps: a process that is stopped for a while does not
/// hang. By a thread of its own: one whose workers are all blocked does.
pub(crate) async fn within<T>(limit: Duration, done: impl Future<Output = T>) -> Option<T> {
    const TICK: Duration = Duration::from_millis(20);
    let (over, is_over) = oneshot::channel();
    thread::spawn(move || {
        let ticks = limit.as_millis() / TICK.as_millis();
        if (0..ticks).all(|_| {
            thread::sleep(TICK);
            !over.is_closed()
        }) {
            let _ = over.send(());
        }
    });
    tokio::select! {
        biased;
        done = done => Some(done),
        _ = is_over => None,
    }
}

/// A running router and a client of it.
pub(crate) struct Served {
    pub(crate) router: Router,
    pub(crate) client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer that was read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("the body is whole").to_bytes();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and code of an error in OpenAI's form.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let error = &self.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{self:?}");
        (self.status, error["code"].as_str().unwrap().to_owned())
    }
}

/// Starts a router.
pub(crate) async fn start(args: &[&str]) -> Served {
    try_start(args).await.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) async fn try_start(args: &[&str]) -> Result<Served, StartError> {
    let router = Router::start(options(args)).await?;
    Ok(Served { router, client: Client::builder(TokioExecutor::new()).build_http() })
}

pub(crate) fn options(args: &[&str]) -> Options {
    let mut all = vec!["router", "--listen", "127.0.0.1:0"];
    if !args.contains(&"--health-interval") {
        all.extend(["--health-interval", "0.05"]);
    }
    Options::try_parse_from(all.iter().chain(args)).unwrap()
}

impl Served {
    pub(crate) fn request(&self, path: &str) -> axum::http::request::Builder {
        Request::builder().method("POST").uri(format!("http://{}{path}", self.router.addr()))
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        Answer::of(self.client.request(request).await.expect("there is an answer")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(path).method("GET").body(Full::default()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send(self.request(path).body(Full::new(body.into())).unwrap()).await
    }

    pub(crate) async fn complete(&self, body: Value) -> Answer {
        self.post("/v1/completions", body.to_string()).await
    }

    /// With these headers.
    pub(crate) async fn complete_with(&self, headers: &[(&str, &str)], body: Value) -> Answer {
        let request =
            headers.iter().fold(self.request("/v1/completions"), |r, (name, value)| r.header(*name, *value));
        self.send(request.body(Full::new(body.to_string().into())).unwrap()).await
    }

    /// The same, asking again as often as the worker breaks off: one that goes while a request is on the way to it on
    /// an old connection may have done it, so nobody else gets it.
    pub(crate) async fn insist_with(&self, headers: &[(&str, &str)], body: Value) -> Answer {
        loop {
            let answer = self.complete_with(headers, body.clone()).await;
            if answer.status != 502 || answer.error().1 != "worker_failed" {
                return answer;
            }
        }
    }

    pub(crate) async fn picture(&self) -> Value {
        self.get("/debug/scheduler").await.json()
    }

    /// The picture of the model `m`, when `is` holds for it.
    pub(crate) async fn when(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let found = async {
            loop {
                let picture = self.picture().await;
                if is(&picture) {
                    return picture;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        match within(PATIENCE, found).await {
            Some(picture) => picture,
            None => panic!("never {what}: {:#}", self.picture().await),
        }
    }

    /// Waits until so many requests wait.
    pub(crate) async fn waiting(&self, requests: u64) {
        self.when("waiting", |picture| sum(picture, "classes", "/waiting/requests") == requests).await;
    }

    /// Waits until so many permits are out.
    pub(crate) async fn permits(&self, permits: u64) {
        self.when("dispatched", |picture| sum(picture, "endpoints", "/permits") == permits).await;
    }

    /// Everything is given back: whatever is a gauge becomes 0. The picture of that moment.
    pub(crate) async fn settles(&self) -> Value {
        let gauges = [
            ("classes", "/waiting/requests"),
            ("classes", "/waiting/raw_isl_tokens"),
            ("classes", "/waiting/cached_tokens"),
            ("endpoints", "/active_tokens"),
            ("endpoints", "/booked_tokens"),
            ("endpoints", "/permits"),
            ("endpoints", "/waiting"),
        ];
        self.when("at rest", |picture| {
            picture["in_flight"] == 0 && gauges.iter().all(|(list, gauge)| sum(picture, list, gauge) == 0)
        })
        .await
    }
}

/// A gauge over all classes or endpoints.
pub(crate) fn sum(picture: &Value, list: &str, gauge: &str) -> u64 {
    let models = picture["models"].as_object().unwrap().values();
    models
        .flat_map(|model| model[list].as_array().unwrap())
        .map(|it| it.pointer(gauge).unwrap().as_u64().unwrap())
        .sum()
}

/// One class of the model `m`.
pub(crate) fn class<'a>(picture: &'a Value, name: &str) -> &'a Value {
    let classes = picture["models"]["m"]["classes"].as_array().unwrap();
    classes
        .iter()
        .find(|class| class["name"] == name)
        .unwrap_or_else(|| panic!("no class {name}: {picture:#}"))
}

/// A prompt of token ids.
pub(crate) fn ids(first: u32, count: u32) -> Value {
    json!({ "model": "m", "prompt": (first..first + count).collect::<Vec<_>>(), "max_tokens": 1 })
}

/// A file in a directory of the test.
pub(crate) fn file(test: &str, name: &str, text: &str) -> PathBuf {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("router")
        .join(std::process::id().to_string())
        .join(test);
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A port that is the test's own also while nobody listens there: else the system may give it to whoever asks for any.
pub(crate) struct Port {
    addr: SocketAddr,
    _held: Option<TcpSocket>,
}

impl Port {
    pub(crate) fn any() -> Self {
        let held = TcpSocket::new_v4().unwrap();
        held.set_reuseaddr(true).unwrap();
        held.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let addr = held.local_addr().unwrap();
        // Elsewhere one that is bound is in the way of one that listens.
        Self { addr, _held: cfg!(target_os = "linux").then_some(held) }
    }

    /// Listens, unless somebody still does.
    pub(crate) async fn listen(&self) -> io::Result<TcpListener> {
        TcpListener::bind(self.addr).await
    }

    /// Listens as soon as whoever did has gone.
    pub(crate) async fn listen_again(&self) -> TcpListener {
        loop {
            match self.listen().await {
                Ok(listener) => return listener,
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
        }
    }
}

/// A request as a worker received it.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Values of a header.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

type Doing = Pin<Box<dyn Future<Output = ()> + Send>>;
type Deed = Arc<dyn Fn(TcpStream, Heard) -> Doing + Send + Sync>;

/// A worker that is well, and does with requests what it is told. Dropping it kills it and its connections.
pub(crate) struct Worker {
    pub(crate) port: u16,
    task: AbortHandle,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Worker {
    /// A worker that does `deed` with each request, and closes the connection.
    pub(crate) async fn start<F, D>(deed: D) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        D: Fn(TcpStream, Heard) -> F + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let deed: Deed = Arc::new(move |stream, heard| Box::pin(deed(stream, heard)));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(connection(stream, deed.clone()));
            }
        });
        Self { port, task: task.abort_handle() }
    }

    /// A worker that answers with these bytes.
    pub(crate) async fn says(bytes: impl AsRef<[u8]>) -> Self {
        let bytes: Arc<[u8]> = bytes.as_ref().into();
        Self::start(move |mut stream, _| {
            let bytes = bytes.clone();
            async move { drop(stream.write_all(&bytes).await) }
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// An answer with a length, the last one on its connection.
pub(crate) fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn connection(mut stream: TcpStream, deed: Deed) {
    let Some(heard) = hear(&mut stream).await else { return };
    let models = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;
    let well = match heard.head.split(' ').nth(1) {
        Some("/health") => http("200 OK", "", ""),
        Some("/v1/models") => http("200 OK", "", models),
        _ => return deed(stream, heard).await,
    };
    drop(stream.write_all(well.as_bytes()).await);
}

/// Reads one request.
pub(crate) async fn hear(stream: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut heard = Heard { head, body: bytes[end + 4..].to_vec() };
        let length = heard.header("content-length").first().map_or(0, |length| length.parse().unwrap());
        while heard.body.len() < length {
            if stream.read_buf(&mut heard.body).await.ok()? == 0 {
                return None;
            }
        }
        return Some(heard);
    }
}

/// Sends bytes as they are, and reads until the connection is closed.
pub(crate) async fn raw(served: &Served, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.router.addr()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // What was said before a connection broke counts as well.
    let _ = within(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) const OK: u16 = StatusCode::OK.as_u16();
