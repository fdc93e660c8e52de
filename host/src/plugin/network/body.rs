//! A body on its way, in bounds: so many bytes in all, and so long between two parts.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use wasmtime_wasi_http::Error;

use super::OfCall;

/// A body that ends with an error where it leaves its bounds.
pub(super) struct Bounded<B> {
    inner: B,
    left: u64,
    excess: fn() -> Error,
    /// None: as long as the call has.
    pause: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<B> Bounded<B> {
    /// Bounds the bytes of a body of this call. `excess` is what is wrong with more of them.
    pub(super) fn new(inner: B, call: &OfCall, excess: fn() -> Error) -> Self {
        Self { inner, left: call.network.body, excess, pause: None }
    }

    /// Bounds the time between two parts, too.
    pub(super) fn with_pause(self, pause: Option<Duration>) -> Self {
        Self { pause: pause.map(|pause| (pause, Box::pin(sleep(pause)))), ..self }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Bounded<B>
where
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Self { inner, left, excess, pause } = self.get_mut();
        let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) else {
            if let Some((_, pause)) = pause {
                ready!(pause.as_mut().poll(cx));
                return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            }
            return Poll::Pending;
        };
        if let Some((length, pause)) = pause {
            pause.as_mut().reset(Instant::now() + *length);
        }
        let frame = frame.map(|frame| {
            let frame = frame.map_err(Into::into)?;
            let bytes = frame.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
            *left = left.checked_sub(bytes).ok_or_else(*excess)?;
            Ok(frame)
        });
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
