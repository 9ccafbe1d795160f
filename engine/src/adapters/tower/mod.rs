//! A [`tower`](https://docs.rs/tower) layer in front of any HTTP service, feature `tower`: each request waits for its
//! permit, and the permit is given back when its response ends.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tollgate::policy::{Profile, QueuePolicy};
//! use tollgate::tower::{HeldPermit, PermitLayer, refuse_by_status};
//! use tollgate::{Engine, Worker, WorkerSnapshot};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let engine = Engine::builder(Profile::synthetic(Some(8_192), QueuePolicy::Fcfs))
//!     .workers(WorkerSnapshot::new(1, vec![Worker::new(7)])?)
//!     .start()?;
//! let ask = |request: &Request<String>| {
//!     let tokens = request.headers().get("x-prompt-tokens").and_then(|n| n.to_str().ok()?.parse().ok());
//!     let bad = || Response::builder().status(StatusCode::BAD_REQUEST).body(String::new()).unwrap();
//!     tokens.map(|tokens| tollgate::Request::new(tokens, 0)).ok_or_else(bad)
//! };
//! let service = ServiceBuilder::new()
//!     .layer(PermitLayer::new(engine.clone(), ask, refuse_by_status))
//!     .service(service_fn(async |request: Request<String>| {
//!         let permit = request.extensions().get::<HeldPermit>().unwrap();
//!         Ok::<_, std::io::Error>(Response::new(format!("from worker {}", permit.endpoint().worker)))
//!     }));
//!
//! let request = Request::builder().header("x-prompt-tokens", "12000").body(String::new())?;
//! let response = service.clone().oneshot(request).await?;
//! assert_eq!(response.body().get_ref(), "from worker 7");
//! assert_eq!(engine.booked()[0].1.permits, 1); // until the body ends
//! drop(response);
//! assert_eq!(engine.booked()[0].1.permits, 0);
//!
//! let response = service.oneshot(Request::new(String::new())).await?;
//! assert_eq!(response.status(), StatusCode::BAD_REQUEST);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod future;
mod held;

use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

pub use body::PermitBody;
pub use future::PermitFuture;
pub use held::HeldPermit;

use crate::engine::Engine;
use crate::error::{Reason, Rejected};

/// Puts an engine in front of services; see [the module](self).
///
/// | | is called with | returns |
/// |---|---|---|
/// | `ask` | `&http::Request<B>` | `Result<tollgate::Request, http::Response<P>>`: what to ask the engine for, or the answer if that cannot be told |
/// | `refuse` | [`Rejected`] | `http::Response<P>`: the answer to a refusal, as [`refuse_by_status`] gives it |
#[derive(Clone, Debug)]
pub struct PermitLayer<A, R> {
    engine: Engine,
    ask: A,
    refuse: R,
}

impl<A, R> PermitLayer<A, R> {
    /// A layer that asks `engine` for permits.
    pub fn new(engine: Engine, ask: A, refuse: R) -> Self {
        Self { engine, ask, refuse }
    }
}

impl<S, A: Clone, R: Clone> Layer<S> for PermitLayer<A, R> {
    type Service = PermitService<S, A, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { engine, ask, refuse } = self.clone();
        PermitService { engine, ask, refuse, inner }
    }
}

/// A service whose requests wait for a permit first.
///
/// The inner service finds the permit in the request's extensions, as a [`HeldPermit`]. The first byte of the response
/// body completes the prefill. The permit is given back when the body has ended, has failed or is dropped; when the inner
/// service fails or panics; or when the future is dropped, which before the permit cancels the request.
#[derive(Clone, Debug)]
pub struct PermitService<S, A, R> {
    engine: Engine,
    ask: A,
    refuse: R,
    inner: S,
}

impl<S, A, R, B, P> Service<Request<B>> for PermitService<S, A, R>
where
    S: Service<Request<B>, Response = Response<P>> + Clone,
    A: Fn(&Request<B>) -> Result<crate::Request, Response<P>>,
    R: Fn(Rejected) -> Response<P> + Clone,
    P: Body,
{
    type Response = Response<PermitBody<P>>;
    type Error = S::Error;
    type Future = PermitFuture<S, R, B, P>;

    /// Always ready: requests wait in the engine, which knows their classes and has limits. The inner service is asked
    /// whether it is ready when a request has its permit.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let asked = match (self.ask)(&request) {
            Ok(asked) => asked,
            Err(response) => return PermitFuture::answered(response),
        };
        match self.engine.admit(asked) {
            Ok(admission) => {
                PermitFuture::waiting(admission, request, self.inner.clone(), self.refuse.clone())
            }
            Err(rejected) => PermitFuture::answered((self.refuse)(rejected)),
        }
    }
}

/// A refusal that says no more than [`Reason::http_status`].
pub fn refuse_by_status<P: Default>(rejected: Rejected) -> Response<P> {
    let mut response = Response::new(P::default());
    *response.status_mut() = status(&rejected.reason);
    response
}

/// [`Reason::http_status`] as a type.
pub fn status(reason: &Reason) -> StatusCode {
    StatusCode::from_u16(reason.http_status()).expect("every reason has a valid status")
}
