//! Decides what a write of one thing makes of what is known of its primary, and how much memory all of that takes.

use std::sync::Arc;

use super::shares::{EACH, Taken};
use super::written::{Confirmed, Write, Written};
use super::{Standing, Things};
use crate::object::ObjectRef;

/// What is known of one primary.
pub(super) struct Known {
    /// The uid of the primary; empty if its things came with those of all.
    pub(super) uid: Box<str>,
    pub(super) things: Things,
    pub(super) standing: Standing,
    /// What runs have written since.
    pub(super) written: Written,
    /// The uid of the primary whose runs those were; empty before the first.
    pub(super) writer: Box<str>,
    /// Answers that began before this don't end what runs have written; [`u64::MAX`] as long as none has ended well since.
    pub(super) held: u64,
    /// The bytes that all of it takes.
    pub(super) bytes: u64,
    /// When a request has told something of it last, as [`super::Began`] counts.
    pub(super) told: u64,
    /// Whether the last answer has not seen something that was written.
    pub(super) overruled: bool,
}

/// What a write makes of what is known of one primary.
pub(super) struct After {
    /// The thing that is written, as it is then; nothing if it is gone.
    things: Things,
    /// What is written of that thing.
    written: Written,
    /// What all things take then.
    pub(super) taken: Taken,
}

impl Known {
    pub(super) fn of((primary, uid): (&ObjectRef, &str), things: Things, standing: Standing) -> Self {
        let bytes = size(primary, &things);
        let (written, writer) = <(Written, Box<str>)>::default();
        Self { uid: uid.into(), things, standing, written, writer, held: 0, bytes, told: 0, overruled: false }
    }

    /// Returns what an answer that began then makes of it: `things` of the `primary` under the `uid` that the answer is about.
    pub(super) fn answered(&self, of: (&ObjectRef, &str), things: Things, began: u64) -> Self {
        let Confirmed { things, written, overruled } = self.written.clone().confirm(things, began <= self.held);
        let answered = Self::of(of, things, Standing::Polled);
        let bytes = answered.bytes + written.size();
        let writer = self.writer.clone();
        Self { written, writer, bytes, held: self.held, told: self.told, overruled, ..answered }
    }

    /// Has the next answer be right, whatever runs have written before. Returns the bytes that this gives back.
    pub(super) fn settle(&mut self) -> u64 {
        let bytes = std::mem::take(&mut self.written).size();
        (self.bytes, self.held) = (self.bytes - bytes, 0);
        bytes
    }

    pub(super) fn taken(&self) -> Taken {
        Taken { things: self.things.len() as u64, bytes: self.bytes }
    }

    /// Returns what a write of one thing makes of it, whatever else there is; none if it stays as it is.
    pub(super) fn after(&self, primary: &ObjectRef, id: &Arc<str>, write: Write) -> Option<After> {
        let one: Things = self.things.get(id).map(|text| (Arc::clone(id), Arc::clone(text))).into_iter().collect();
        let before = self.written.of(id);
        let mut written = before.clone();
        let things = match self.standing {
            Standing::Polled => written.take(&one, id, write),
            // It is polled before it is read; that poll may be under way.
            Standing::Awaited | Standing::Failed => written.mark(id, write).then(|| one.clone()),
            Standing::Unwanted => None,
        }?;
        let count = self.things.len() - one.len() + things.len();
        let head = |count: usize| if count == 0 { 0 } else { size_of_names(primary) };
        let more = head(count) + size_of_all(&things) + written.size();
        let less = head(self.things.len()) + size_of_all(&one) + before.size();
        let taken = Taken { things: count as u64, bytes: self.bytes + more - less };
        Some(After { things, written, taken })
    }

    /// Takes in what a write of a thing makes of it.
    pub(super) fn take(&mut self, id: &Arc<str>, After { things, written, taken }: After) {
        self.things.remove(id);
        self.things.extend(things);
        self.written.replace(id, written);
        self.bytes = taken.bytes;
    }
}

impl After {
    /// Returns it without what is written: no poll confirms that, and what is said later is right in any case.
    pub(super) fn settled(self) -> Self {
        let bytes = self.taken.bytes - self.written.size();
        Self { written: Written::default(), taken: Taken { bytes, ..self.taken }, ..self }
    }
}

/// Returns the bytes that the things of a primary take, with its name; nothing if it has none.
pub(super) fn size(primary: &ObjectRef, things: &Things) -> u64 {
    if things.is_empty() {
        return 0;
    }
    size_of_names(primary) + size_of_all(things)
}

fn size_of_names(primary: &ObjectRef) -> u64 {
    EACH + length(&primary.name) + primary.namespace.as_ref().map_or(0, length)
}

fn size_of_all(things: &Things) -> u64 {
    things.iter().map(|(id, thing)| EACH + length(id) + length(thing)).sum()
}

fn length(text: &Arc<str>) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
