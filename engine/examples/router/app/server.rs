//! Connections: how many, for how long, and their end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tower_service::Service as _;

use super::Shared;
use super::error::ApiError;

/// Connections above the limit that are told so; those above are closed without a word.
const TOLD: usize = 64;

/// Largest head of a request \[bytes\].
const HEAD_BYTES: usize = 64 << 10;

/// Pause after the system had no connection to give, for want of file descriptors, say.
const BREATH: Duration = Duration::from_millis(50);

/// Accepts connections until it is drained or dropped.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<Duration>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(listener: TcpListener, app: Router, shared: Arc<Shared>) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop: Some(stop), task: tokio::spawn(run(listener, app, shared, stopped)) }
    }

    /// Accepts nothing more, and waits until the requests that are there are answered, for at most `limit`.
    pub(crate) async fn drain(&mut self, limit: Duration) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(limit);
            // It was not aborted, and a panic of it has been reported.
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(listener: TcpListener, app: Router, shared: Arc<Shared>, mut stop: oneshot::Receiver<Duration>) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let limit = loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let place = Place::of(connections.len(), shared.options.limits.max_connections);
                    if place != Place::None {
                        connections.spawn(serve(stream, place, app.clone(), shared.clone(), graceful.watcher()));
                    }
                }
                // The client is gone again already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    eprintln!("cannot accept a connection: {error}");
                    sleep(BREATH).await;
                }
            },
            Some(_) = connections.join_next() => {}
            stopped = &mut stop => match stopped {
                Ok(limit) => break limit,
                Err(_) => return,
            },
        }
        shared.metrics.connections.set(connections.len() as i64);
    };
    drop(listener);
    let ended = async {
        graceful.shutdown().await;
        while connections.join_next().await.is_some() {}
        shared.metrics.connections.set(0);
    };
    if timeout(limit, ended).await.is_err() {
        eprintln!("connections are broken off after {limit:?}");
    }
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is served.
    Served,
    /// It is told that there are too many.
    Told,
    /// There are far too many.
    None,
}

impl Place {
    fn of(connections: usize, limit: usize) -> Self {
        match connections {
            n if n < limit => Self::Served,
            n if n < limit + TOLD => Self::Told,
            _ => Self::None,
        }
    }
}

async fn serve(stream: TcpStream, place: Place, app: Router, shared: Arc<Shared>, watcher: Watcher) {
    // Without it the last words of an answer may wait for the client's acknowledgement.
    let _ = stream.set_nodelay(true);
    let limits = &shared.options.limits;
    let (shared_, most) = (shared.clone(), limits.max_headers);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (mut app, shared) = (app.clone(), shared_.clone());
        async move {
            let headers = request.headers().len();
            let refused = match place {
                Place::Served if headers <= most => None,
                Place::Served => Some(ApiError::new(
                    431,
                    "too_many_headers",
                    format!("there are {headers} headers; {most} are allowed"),
                )),
                _ => Some(ApiError {
                    retry_after: Some(1),
                    ..ApiError::new(503, "too_many_connections", "there are too many connections")
                }),
            };
            if let Some(error) = refused {
                return Ok(closing(error.into_response()));
            }
            let request: Request = request.map(Body::new);
            let answer = app.call(request).await;
            answer.map(|answer| if shared.is_draining() { closing(answer) } else { answer })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        // More are answered by hyper itself, without a body.
        .max_headers(most.saturating_mul(2).max(64))
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that breaks has nobody left to tell.
    let _ = watcher.watch(connection).await;
}

/// The connection ends with this answer.
fn closing(mut answer: Response<Body>) -> Response<Body> {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Serves connections without limits until the task is aborted, and its connections with it.
pub(crate) fn bare(listener: TcpListener, app: Router) -> AbortHandle {
    let serve = async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((stream, _)) = accepted else {
                        sleep(BREATH).await;
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    let service = TowerToHyperService::new(app.clone());
                    connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    };
    tokio::spawn(serve).abort_handle()
}
