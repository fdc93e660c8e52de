//! Decides what a record of swaps, events and answers says: how long nobody answered, who was answered late, twice or never.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::super::spread::Spread;
use crate::diary::{Answer, Version};

/// How often gaps are looked at, in microseconds.
const LOOK: i64 = 100;
/// So many microseconds before and after, an event is said to be sent at a swap.
const NEAR: i64 = 10_000;

/// What happened. Times are in microseconds, all by the same clock.
#[derive(Default)]
pub(super) struct Record {
    /// In the order of time.
    pub(super) swaps: Vec<Swapped>,
    /// In the order of their numbers.
    pub(super) sent: Vec<Sent>,
    /// In the order of time.
    pub(super) answers: Vec<Answer>,
    /// Runs that were begun, as the daemon counts them.
    pub(super) started: f64,
    /// How long events came.
    pub(super) seconds: f64,
}

/// A version that was put in the place of the one before.
pub(super) struct Swapped {
    /// When the file was renamed.
    pub(super) renamed: i64,
    /// When it was in force.
    pub(super) placed: i64,
    /// When it had answered each primary; none where it need not at once.
    pub(super) all_answered: Option<i64>,
    /// What answers from then on.
    pub(super) version: Version,
}

pub(super) struct Sent {
    /// When the request was begun.
    pub(super) at: i64,
    /// The probe, with its namespace.
    pub(super) probe: String,
    pub(super) event: usize,
}

/// Times at swaps, and those of all others.
pub(super) struct Split {
    pub(super) at_swaps: Spread,
    pub(super) elsewhere: Spread,
}

impl Split {
    /// Takes times in microseconds, and whether they were at a swap.
    fn of(times: impl IntoIterator<Item = (i64, bool)>) -> Self {
        let (at_swaps, elsewhere): (Vec<_>, Vec<_>) = times.into_iter().partition(|(_, at_swap)| *at_swap);
        let spread = |times: Vec<(i64, bool)>| Spread::of_micros(times.into_iter().map(|(time, _)| time));
        Self { at_swaps: spread(at_swaps), elsewhere: spread(elsewhere) }
    }
}

impl Record {
    /// Returns the times between answers, each and the one before. At a swap is the gap before the first answer of a version;
    /// elsewhere the one that a look at any other time between the first swap and the last falls into. A swap, too, falls rather
    /// into a long one than into a short one, so a gap counts by its length.
    pub(super) fn gaps(&self) -> Result<Split> {
        let firsts = self.firsts()?;
        let between = firsts.first().copied().unwrap_or_default()..firsts.last().copied().unwrap_or_default();
        let pairs = self.answers.iter().zip(self.answers.iter().skip(1));
        Ok(Split::of((1..).zip(pairs).flat_map(|(at, (before, answer))| {
            let is_first = firsts.contains(&at);
            let looks = answer.at.div_euclid(LOOK) - before.at.div_euclid(LOOK);
            let counts = if is_first { 1 } else { looks * i64::from(between.contains(&at)) };
            (0..counts).map(move |_| (answer.at - before.at, is_first))
        })))
    }

    /// Returns the times from events to their first answers; at swaps are those of events that were sent [`NEAR`] the time at which
    /// a version came into force.
    pub(super) fn waits(&self) -> Split {
        let mut answered = BTreeMap::new();
        for answer in &self.answers {
            answered.entry(answer.event).or_insert(answer.at);
        }
        let placed: BTreeSet<i64> = self.swaps.iter().map(|swap| swap.placed).collect();
        Split::of(self.sent.iter().filter_map(|Sent { at, event, .. }| {
            let answer = answered.get(event).filter(|answer| *answer >= at)?;
            Some((answer - at, placed.range(at - NEAR..at + NEAR).next().is_some()))
        }))
    }

    /// Returns how long each version took to be in force.
    pub(super) fn placing(&self) -> Spread {
        let times = self.swaps.iter().map(|swap| swap.placed - swap.renamed);
        Spread::of_micros(times)
    }

    /// Returns how long each version took, once in force, to answer each primary.
    pub(super) fn all_again(&self) -> Spread {
        let times = self.swaps.iter();
        Spread::of_micros(times.filter_map(|swap| Some(swap.all_answered? - swap.placed)))
    }

    pub(super) fn unanswered(&self) -> usize {
        let answered = self.answered();
        let is_unanswered = |sent: &&Sent| !answered.contains(&sent.event);
        self.sent.iter().filter(is_unanswered).count()
    }

    /// Counts the primaries whose last event nobody has answered. An event before may have been answered together with the
    /// next one.
    pub(super) fn outdated(&self) -> usize {
        let answered = self.answered();
        let last: BTreeMap<&str, usize> = self.sent.iter().map(|sent| (&*sent.probe, sent.event)).collect();
        let is_unanswered = |event: &&usize| !answered.contains(event);
        last.values().filter(is_unanswered).count()
    }

    fn answered(&self) -> BTreeSet<usize> {
        self.answers.iter().map(|answer| answer.event).collect()
    }

    /// Returns where the first answer of each version is.
    fn firsts(&self) -> Result<Vec<usize>> {
        let firsts = self.swaps.iter().zip(1..).map(|(swap, number)| {
            let is_first = |answer: &Answer| answer.at >= swap.renamed && answer.version == swap.version;
            let first = self.answers.iter().position(is_first);
            first.with_context(|| format!("nobody was answered after swap {number}"))
        });
        firsts.collect()
    }

    /// Counts answers of the version before, after the first one of each version and before the next swap: of runs that were under
    /// way.
    pub(super) fn late(&self) -> Result<usize> {
        let firsts = self.firsts()?;
        let ends = self.swaps.iter().skip(1).map(|swap| swap.renamed);
        let ends = ends.chain([i64::MAX]);
        let late = self.swaps.iter().zip(firsts).zip(ends);
        let late = late.map(|((swap, first), end)| {
            let since = self.answers.iter().skip(first);
            let until = since.take_while(|answer| answer.at < end);
            until.filter(|answer| answer.version != swap.version).count()
        });
        Ok(late.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diary::Edition;

    const OLD: Version = Version { edition: Edition::First, config: 1 };
    const NEW: Version = Version { edition: Edition::Second, config: 1 };

    /// Swaps at 20 and 40 ms that take 2 ms; events 0, 1, … of two probes in turn, at these times; answers: when, to which
    /// event, of whom.
    fn record(events: &[i64], answers: &[(i64, usize, Version)]) -> Record {
        let probe = |event: usize| format!("swap/{}", event % 2);
        let swapped =
            |renamed, version| Swapped { renamed, placed: renamed + 2000, all_answered: Some(renamed + 5000), version };
        Record {
            swaps: vec![swapped(20_000, NEW), swapped(40_000, OLD)],
            sent: (0..).zip(events).map(|(event, at)| Sent { at: *at, probe: probe(event), event }).collect(),
            answers: answers
                .iter()
                .map(|(at, event, version)| Answer { at: *at, probe: probe(*event), event: *event, version: *version })
                .collect(),
            ..Record::default()
        }
    }

    #[test]
    fn a_gap_at_a_swap_is_that_before_the_first_answer_of_the_new_version() {
        let record = record(
            &[],
            &[
                (10_000, 0, OLD),
                (21_000, 1, OLD),
                (25_000, 2, NEW),
                (26_000, 3, OLD),
                (29_000, 4, NEW),
                (41_000, 5, NEW),
                (48_000, 6, OLD),
                (90_000, 7, OLD),
            ],
        );
        let gaps = record.gaps().unwrap();
        assert_eq!(gaps.at_swaps, Spread::of_micros([4000, 7000]));
        let elsewhere = [vec![1000; 10], vec![3000; 30], vec![12_000; 120]];
        assert_eq!(gaps.elsewhere, Spread::of_micros(elsewhere.concat()));
        assert_eq!(record.late().unwrap(), 1);
        assert_eq!(record.placing(), Spread::of_micros([2000, 2000]));
        assert_eq!(record.all_again(), Spread::of_micros([3000, 3000]));
    }

    #[test]
    fn an_event_is_answered_once_however_many_runs_there_are_and_counts_by_when_it_was_sent() {
        let record = record(
            &[9000, 20_500, 22_000, 41_000, 60_000],
            &[
                (10_000, 0, OLD),
                (25_000, 1, NEW),
                (27_000, 2, NEW),
                (42_000, 3, OLD),
                (43_000, 3, OLD),
                (60_100, 4, OLD),
            ],
        );
        let waits = record.waits();
        assert_eq!(waits.at_swaps, Spread::of_micros([4500, 5000, 1000]));
        assert_eq!(waits.elsewhere, Spread::of_micros([1000, 100]));
        assert_eq!((record.unanswered(), record.outdated()), (0, 0));
    }

    #[test]
    fn an_event_without_an_answer_is_unanswered_unless_a_later_one_was_answered_for_it() {
        let record = record(&[1, 2, 3, 4], &[(5, 0, OLD), (6, 1, OLD), (7, 2, OLD)]);
        assert_eq!((record.unanswered(), record.outdated()), (1, 1));
        let record = self::record(&[1, 2, 3, 4], &[(6, 2, OLD), (7, 3, OLD)]);
        assert_eq!((record.unanswered(), record.outdated()), (2, 0));
    }

    #[test]
    fn a_version_that_never_answers_is_named() {
        let error = record(&[], &[(30_000, 0, NEW)]).gaps().err().unwrap();
        assert_eq!(error.to_string(), "nobody was answered after swap 2");
    }
}
