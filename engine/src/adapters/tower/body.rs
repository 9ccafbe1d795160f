//! A response body that gives a permit back.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::held::{HeldPermit, Releases};

pin_project! {
    /// The body of a response behind a [`PermitService`](super::PermitService): passes the inner one on and gives the
    /// permit back at its end.
    #[derive(Debug)]
    pub struct PermitBody<P> {
        #[pin]
        inner: P,
        // Until the end.
        permit: Option<Releases>,
    }
}

impl<P: Body> PermitBody<P> {
    pub(super) fn new(inner: P, permit: Option<Releases>) -> Self {
        let permit = permit.filter(|_| !inner.is_end_stream());
        Self { inner, permit }
    }
}

impl<P> PermitBody<P> {
    /// The permit, until the body has ended; a refusal has none.
    pub fn permit(&self) -> Option<&HeldPermit> {
        self.permit.as_ref().map(|Releases(held)| held)
    }

    /// The inner body.
    pub fn get_ref(&self) -> &P {
        &self.inner
    }
}

impl<P: Body> Body for PermitBody<P> {
    type Data = P::Data;
    type Error = P::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<P::Data>, P::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let (Some(Ok(frame)), Some(Releases(held))) = (&frame, &this.permit)
            && frame.data_ref().is_some_and(Buf::has_remaining)
        {
            held.prefill_complete();
        }
        // Who sees that a body has ended need not poll it again.
        if !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream() {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
