//! Decides where a line of a watch ends, and by when it should have.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::time::Instant;

use crate::backoff::until;

/// How long an event of a watch may take from its first byte to its last.
pub(super) const EVENT_TIMEOUT: Duration = Duration::from_mins(1);

/// What has come of a watch and is not read yet.
#[derive(Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// So many bytes of an unfinished line are known to have no end in them.
    searched: usize,
    /// When the first bytes of an unfinished line came.
    begun: Option<Instant>,
}

impl Lines {
    /// Takes in what comes.
    pub(super) fn come(&mut self, data: &[u8]) {
        if self.begun.is_none() && !data.is_empty() {
            self.begun = Some(Instant::now());
        }
        self.buffer.extend_from_slice(data);
    }

    /// Returns the next whole line.
    pub(super) fn next(&mut self) -> Option<BytesMut> {
        let Self { buffer, searched, begun } = self;
        let Some(found) = buffer.get(*searched..).and_then(|rest| memchr::memchr(b'\n', rest)) else {
            *searched = buffer.len();
            return None;
        };
        let line = buffer.split_to(*searched + found);
        buffer.advance(1);
        *searched = 0;
        // What is behind it has come just now.
        *begun = (!buffer.is_empty()).then(Instant::now);
        Some(line)
    }

    /// Returns how many bytes of an unfinished line there are.
    pub(super) fn rest(&self) -> usize {
        self.buffer.len()
    }

    /// Waits until the end of a line that has begun should have come; for ever, if none has begun.
    pub(super) async fn late(&self) {
        until(self.begun.map(|begun| begun + EVENT_TIMEOUT)).await;
    }
}
