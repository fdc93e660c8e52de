//! Decides when the bytes of an answer come: those of a document at once, those of a watch when something happens.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::fault::ConnectionBroken;
use crate::server::Server;
use crate::watch::{Next, Watch};

/// The body of an answer.
pub struct ModelBody {
    content: Content,
    /// The number of bytes that arrive before the connection breaks; `None` = all.
    left: Option<usize>,
}

enum Content {
    Whole(Option<Bytes>),
    Watch(Box<Following>),
}

/// Waits for a change, or for a time.
struct Waiting {
    changed: Pin<Box<OwnedNotified>>,
    time: Pin<Box<Sleep>>,
}

/// A watch that is being read.
struct Following {
    server: Arc<Server>,
    watch: Watch,
    /// The change or time that it waits for.
    waiting: Option<Waiting>,
}

impl ModelBody {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { content: Content::Whole(Some(bytes)), left: None }
    }

    pub(crate) fn watch(server: Arc<Server>, watch: Watch) -> Self {
        let following = Following { server, watch, waiting: None };
        Self { content: Content::Watch(Box::new(following)), left: None }
    }

    /// Returns the body that breaks off after `after` bytes.
    pub(crate) fn cut(self, after: usize) -> Self {
        Self { left: Some(after), ..self }
    }
}

impl Following {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, ConnectionBroken>>> {
        loop {
            if let Some(Waiting { changed, time }) = &mut self.waiting {
                let woken = changed.as_mut().poll(context).is_ready() | time.as_mut().poll(context).is_ready();
                if !woken {
                    return Poll::Pending;
                }
                self.waiting = None;
            }
            // Any change from now on wakes it.
            let mut changed = Box::pin(Arc::clone(&self.server.changed).notified_owned());
            changed.as_mut().enable();
            let next = self.server.world.lock().next(&mut self.watch, Instant::now());
            match next {
                Next::Line(line) => return Poll::Ready(Some(Ok(line))),
                Next::End => return Poll::Ready(None),
                Next::Broken => return Poll::Ready(Some(Err(ConnectionBroken))),
                Next::Wait(until) => {
                    let time = Box::pin(sleep_until(until));
                    self.waiting = Some(Waiting { changed, time });
                }
            }
        }
    }
}

impl Body for ModelBody {
    type Data = Bytes;
    type Error = ConnectionBroken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionBroken>>> {
        let Self { content, left } = &mut *self;
        if *left == Some(0) {
            return Poll::Ready(Some(Err(ConnectionBroken)));
        }
        let next = match content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Content::Watch(following) => following.poll(context),
        };
        next.map(|next| {
            let Some(bytes) = next else {
                // A body that is shorter than the bytes that should arrive breaks at its end.
                return left.take().map(|_| Err(ConnectionBroken));
            };
            let mut bytes = match bytes {
                Ok(bytes) => bytes,
                Err(broken) => return Some(Err(broken)),
            };
            if let Some(left) = left {
                bytes.truncate(*left);
                *left -= bytes.len();
            }
            Some(Ok(Frame::data(bytes)))
        })
    }
}
