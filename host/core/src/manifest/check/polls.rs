//! The sources of things outside of the cluster.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::time::Duration;

use super::super::polls::{Each, External, PRIMARY, Polled, SHORTEST};
use super::super::raw::{self, Maybe};
use super::super::units::{Bytes, Time, Times};
use super::{Check, get, located, time, workers};
use crate::cel::Right;
use crate::object::pointer::Pointer;
use crate::yaml::{Leaf, Located, Scalar};

impl Check<'_> {
    pub(super) fn poll(&mut self, poll: &Located<raw::Poll>) -> Option<External> {
        let Located { value: raw, place } = poll;
        let (every, id) = (self.every(&raw.every, *place), self.id(&raw.id, *place));
        let (things, memory) = bounds(&raw.bounded);
        let filters = self.filters(&raw.filters);
        Some(External { id: id?, things, memory, filters, polled: Polled::Together { every: every? } })
    }

    pub(super) fn poll_each(&mut self, poll: &Located<raw::PollEach>) -> Option<External> {
        let Located { value: raw, place } = poll;
        let (every, id) = (self.every(&raw.every, *place), self.id(&raw.id, *place));
        let (things, memory) = bounds(&raw.bounded);
        let when = located(&raw.when).and_then(|Located { value: raw::When::Cel(cel), place }| {
            self.cel(cel, *place, (&[PRIMARY], Right::Boolean))
        });
        let (every, concurrency) = (every?, workers(&raw.concurrency, 1));
        let each = Each { every: Some(every), first_after: time(&raw.first_after, every), when, concurrency };
        let filters = self.filters(&raw.filters);
        Some(External { id: id?, things, memory, filters, polled: Polled::Each(each) })
    }

    fn every(&mut self, field: &Leaf<Time>, around: usize) -> Option<Duration> {
        self.need(field, around, "every").map(|every| self.period(every))
    }

    pub(super) fn period(&mut self, Located { value: Scalar(Time(every)), place }: &Located<Scalar<Time>>) -> Duration {
        if *every < SHORTEST {
            let (found, least) = (Time(*every), Time(SHORTEST));
            self.fault(*place, format!("found {found} from one poll to the next; expected at least {least}"));
        }
        *every
    }

    fn id(&mut self, field: &Leaf<Pointer>, around: usize) -> Option<Pointer> {
        self.need(field, around, "id").map(|pointer| pointer.value.0.clone())
    }
}

/// Returns the most things, and bytes of them.
pub(super) fn bounds(field: &Maybe<raw::KeptThings>) -> (usize, u64) {
    let raw = get(field);
    let things = raw
        .and_then(|raw| get(&raw.things))
        .map(|Scalar(Times(things))| usize::try_from(*things).unwrap_or(usize::MAX));
    let memory = raw.and_then(|raw| get(&raw.memory)).map_or(External::MEMORY, |Scalar(Bytes(memory))| *memory);
    (things.unwrap_or(External::THINGS), memory)
}
