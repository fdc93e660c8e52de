//! Says what is done on a connection: nothing, work on a request, or writing its answer, up to the last byte.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is done on a connection, as an extension of each request.
#[derive(Clone, Default)]
pub struct Busy(Arc<AtomicU8>);

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The client is to say something.
    Nothing,
    /// A request is worked on. Meanwhile its connection is not closed for a new one.
    Work,
    /// Its answer is written. Meanwhile its connection is closed for a new one only if its client has others.
    Writing,
}

const NOTHING: u8 = 0;
const WORK: u8 = 1;
const WRITING: u8 = 2;
/// All of the answer has been given to the connection, which has not sent all of it.
const SENDING: u8 = 3;

/// The body of an answer, which says when all of it has been given away.
struct Told {
    body: Body,
    busy: Busy,
}

/// A stream, which says when all of an answer has been sent.
pub(super) struct Stream<S> {
    pub(super) stream: S,
    pub(super) busy: Busy,
}

// === impl Busy ===

impl Busy {
    pub(super) fn doing(&self) -> Doing {
        match self.0.load(Ordering::Relaxed) {
            NOTHING => Doing::Nothing,
            WORK => Doing::Work,
            _ => Doing::Writing,
        }
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }

    fn passes(&self, from: u8, to: u8) {
        // Otherwise the next request is worked on already.
        let _changed = self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A request is worked on from now on.
    pub(super) fn begin(&self) {
        self.set(WORK);
    }

    /// An answer is written from now on.
    pub(super) fn writes(&self, answer: Response) -> Response {
        self.set(WRITING);
        answer.map(|body| Body::new(Told { body, busy: self.clone() }))
    }

    /// Waits for more of the request. Meanwhile it is not worked on.
    pub async fn waits<T>(&self, more: impl Future<Output = T>) -> T {
        self.set(NOTHING);
        let more = more.await;
        self.set(WORK);
        more
    }
}

// === impl Told ===

impl hyper::body::Body for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.busy.passes(WRITING, SENDING);
    }
}

// === impl Stream ===

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called once nothing is left in the buffers before this one.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.busy.passes(SENDING, NOTHING);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
