//! From a request to its response: wait for the permit, for the service, and for its answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::PermitBody;
use super::held::{HeldPermit, Releases};
use crate::engine::Admission;
use crate::error::Rejected;

pin_project! {
    /// The response of a [`PermitService`](super::PermitService). Dropping it cancels the request, or gives its permit
    /// back.
    pub struct PermitFuture<S, R, B, P>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, R, B, P, S::Future>,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<S, R, B, P, F> {
        // The engine has not said yet.
        Waiting { admission: Admission, request: Option<Request<B>>, inner: Option<S>, refuse: R },
        // The inner service is not ready yet.
        Permitted { inner: S, request: Option<Request<B>>, permit: Option<Releases> },
        Called { #[pin] future: F, permit: Option<Releases> },
        // There is a response without any of that.
        Answered { response: Option<Response<P>> },
    }
}

impl<S: Service<Request<B>>, R, B, P> PermitFuture<S, R, B, P> {
    pub(super) fn waiting(admission: Admission, request: Request<B>, inner: S, refuse: R) -> Self {
        Self { state: State::Waiting { admission, request: Some(request), inner: Some(inner), refuse } }
    }

    pub(super) fn answered(response: Response<P>) -> Self {
        Self { state: State::Answered { response: Some(response) } }
    }
}

/// Polled again after it was ready.
const USED_UP: &str = "not polled after it was ready";

impl<S, R, B, P> Future for PermitFuture<S, R, B, P>
where
    S: Service<Request<B>, Response = Response<P>>,
    R: Fn(Rejected) -> Response<P>,
    P: Body,
{
    type Output = Result<Response<PermitBody<P>>, S::Error>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateNow::Waiting { admission, request, inner, refuse } => {
                    match ready!(Pin::new(admission).poll(cx)) {
                        Ok(permit) => {
                            let permit = HeldPermit::new(permit);
                            let mut request = request.take().expect(USED_UP);
                            request.extensions_mut().insert(permit.clone());
                            State::Permitted {
                                inner: inner.take().expect(USED_UP),
                                request: Some(request),
                                permit: Some(Releases(permit)),
                            }
                        }
                        Err(rejected) => State::Answered { response: Some(refuse(rejected)) },
                    }
                }
                StateNow::Permitted { inner, request, permit } => {
                    if let Err(error) = ready!(inner.poll_ready(cx)) {
                        // Now, and not when the caller drops the future.
                        state.set(State::Answered { response: None });
                        return Poll::Ready(Err(error));
                    }
                    let future = inner.call(request.take().expect(USED_UP));
                    State::Called { future, permit: permit.take() }
                }
                StateNow::Called { future, permit } => {
                    let result = ready!(future.poll(cx));
                    let permit = permit.take();
                    state.set(State::Answered { response: None });
                    let response = result?;
                    return Poll::Ready(Ok(response.map(|inner| PermitBody::new(inner, permit))));
                }
                StateNow::Answered { response } => {
                    let response = response.take().expect(USED_UP);
                    return Poll::Ready(Ok(response.map(|inner| PermitBody::new(inner, None))));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, R, B, P> fmt::Debug for PermitFuture<S, R, B, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "PermitFuture(waiting)",
            State::Permitted { .. } => "PermitFuture(permitted)",
            State::Called { .. } => "PermitFuture(called)",
            State::Answered { .. } => "PermitFuture(answered)",
        })
    }
}
