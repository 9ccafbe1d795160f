//! The body of an answer on its way from the worker to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::timeout;

/// Frames that a client may be behind. Each is at most what one read of a socket brings.
const BEHIND: usize = 32;

/// What breaks an answer off.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A body, and where what it consists of is put in; at most `behind` frames are on their way.
pub(crate) fn channel(behind: usize, size: SizeHint) -> (mpsc::Sender<Result<Frame<Bytes>, Broken>>, Body) {
    let (to, frames) = mpsc::channel(behind);
    (to, Body::new(Outlet { frames, size }))
}

/// The client's end.
struct Outlet {
    frames: mpsc::Receiver<Result<Frame<Bytes>, Broken>>,
    size: SizeHint,
}

impl HttpBody for Outlet {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        Poll::Ready(ready!(self.frames.poll_recv(cx)))
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As it should.
    Whole,
    /// The client went, or did not read.
    Client,
    /// The worker broke off.
    Broken,
    /// The worker said nothing for too long.
    Silent,
}

/// Passes the frames on as they come, in a task of its own: what `held` holds is given back when the worker has said
/// everything, or either side is gone, or the client has not read for `stall`, whatever the connection to the client
/// does.
pub(crate) fn relay<H: Held>(mut from: Incoming, mut held: H, idle: Duration, stall: Duration) -> Body {
    let (to, body) = channel(BEHIND, from.size_hint());
    tokio::spawn(async move {
        let end = loop {
            let frame = tokio::select! {
                frame = timeout(idle, from.frame()) => frame,
                () = to.closed() => break End::Client,
            };
            let frame = match frame {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break End::Whole,
                Ok(Some(Err(_))) => break End::Broken,
                Err(_) => break End::Silent,
            };
            if let Some(data) = frame.data_ref() {
                held.data(data);
            }
            let Err(TrySendError::Full(frame)) = to.try_send(Ok(frame)) else { continue };
            if !matches!(timeout(stall, to.send(frame)).await, Ok(Ok(()))) {
                break End::Client;
            }
        };
        drop(from);
        let last = held.end(end);
        drop(held);
        if let Some(last) = last {
            let _ = timeout(stall, to.send(last.map(Frame::data))).await;
        }
    });
    body
}

/// What is held while an answer is on its way.
pub(crate) trait Held: Send + 'static {
    /// Data is passed on.
    fn data(&mut self, data: &Bytes);
    /// Nothing more comes; what is to be said about it.
    fn end(&mut self, end: End) -> Option<Result<Bytes, Broken>>;
}
