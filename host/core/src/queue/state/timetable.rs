//! Decides which key comes next of those that are due.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::super::Urgency;
use super::entry::Entry;
use crate::object::ObjectRef;

/// EP-13: after so many keys in a row for which something has changed comes one that is due for less, if there is one.
const IN_A_ROW: u32 = 3;

/// The keys that are due, by time: the earliest first; of those with the same time, the one that was put in first. There
/// is one line for each entry with a time to run.
#[derive(Debug, Default)]
pub(super) struct Timetable {
    /// The keys for which something has changed.
    pub(super) fresh: BTreeMap<Due, ObjectRef>,
    /// All others, which are many: those that wait for their maximal interval are among them.
    pub(super) replayed: BTreeMap<Due, ObjectRef>,
    /// The number of lines that there have been.
    number: u64,
    /// The number of fresh keys that were taken since one of the others was, or none was due.
    in_a_row: u32,
}

/// A line of the timetable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::queue) struct Due {
    /// The earliest time at which the key may run.
    pub(super) at: Instant,
    /// Orders lines of the same time. No two lines have the same number. It is even if the key is fresh, and odd if not:
    /// keys are many, and a field of its own would take eight bytes of each.
    number: u64,
}

impl Timetable {
    pub(super) fn earliest(&self) -> Option<Due> {
        let first = |lines: &BTreeMap<Due, ObjectRef>| lines.first_key_value().map(|(due, _)| *due);
        first(&self.fresh).into_iter().chain(first(&self.replayed)).min()
    }

    /// Removes and returns the key that comes next of those that are due (`EP-13`).
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Urgency, ObjectRef)> {
        let urgency = match (is_due(&self.fresh, now), is_due(&self.replayed, now)) {
            (false, false) => return None,
            (true, true) if self.in_a_row >= IN_A_ROW => Urgency::Replayed,
            (true, _) => Urgency::Fresh,
            (false, true) => Urgency::Replayed,
        };
        let (_, key) = self.lines(urgency).pop_first()?;
        Some((urgency, key))
    }

    /// Takes in that a key runs which was due.
    pub(super) fn taken(&mut self, urgency: Urgency, now: Instant) {
        let counts = urgency == Urgency::Fresh && is_due(&self.replayed, now);
        self.in_a_row = if counts { self.in_a_row + 1 } else { 0 };
    }

    /// Returns the number of keys that are due.
    pub(super) fn due(&self, now: Instant) -> usize {
        let due = |lines: &BTreeMap<Due, ObjectRef>| lines.keys().take_while(|due| due.at <= now).count();
        due(&self.fresh) + due(&self.replayed)
    }

    /// Adds a line for a key, in place of its present line (`TM-1`).
    pub(super) fn put(&mut self, key: &ObjectRef, entry: &mut Entry, at: Instant) {
        self.strike(&mut entry.due);
        let urgency = entry.urgency();
        let due = Due::new(at, self.number, urgency);
        self.number += 1;
        self.lines(urgency).insert(due, key.clone());
        entry.due = Some(due);
    }

    /// Makes a key due now. A key that is already due keeps its time, so that no key waits forever; it is among the fresh
    /// ones from now on if it has become one.
    pub(super) fn bring_forward(&mut self, key: &ObjectRef, entry: &mut Entry, now: Instant) {
        match entry.due {
            Some(due) if due.at <= now && due.urgency() <= entry.urgency() => {}
            due => self.put(key, entry, due.map_or(now, |due| due.at.min(now))),
        }
    }

    pub(super) fn strike(&mut self, line: &mut Option<Due>) {
        if let Some(due) = line.take() {
            self.lines(due.urgency()).remove(&due);
        }
    }

    fn lines(&mut self, urgency: Urgency) -> &mut BTreeMap<Due, ObjectRef> {
        match urgency {
            Urgency::Fresh => &mut self.fresh,
            Urgency::Replayed => &mut self.replayed,
        }
    }
}

fn is_due(lines: &BTreeMap<Due, ObjectRef>, now: Instant) -> bool {
    lines.first_key_value().is_some_and(|(due, _)| due.at <= now)
}

impl Due {
    fn new(at: Instant, number: u64, urgency: Urgency) -> Self {
        let odd = match urgency {
            Urgency::Fresh => 0,
            Urgency::Replayed => 1,
        };
        Self { at, number: (number << 1) | odd }
    }

    /// Returns among which keys the line is.
    pub(super) fn urgency(self) -> Urgency {
        if self.number & 1 == 0 { Urgency::Fresh } else { Urgency::Replayed }
    }
}
