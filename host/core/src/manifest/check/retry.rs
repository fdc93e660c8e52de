//! How failures are retried: the policy of a controller, and those of single classes of failures.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::Retry;
use super::super::raw::{self, ClassRetry, Maybe, MaybeLeaf, Nothing, RetryBy};
use super::super::units::{Factor, LONGEST, Share, Time, Times};
use super::{Check, get, located, time};
use crate::guest::FailureClass;
use crate::yaml::{Located, OrWord, Scalar};

/// The fields of a policy, as written.
struct Written<'a> {
    initial_interval: &'a MaybeLeaf<Time>,
    multiplier: &'a MaybeLeaf<Factor>,
    max_attempts: &'a Maybe<OrWord<raw::Unlimited, Scalar<Times>>>,
    max_interval: &'a Maybe<OrWord<Nothing, Scalar<Time>>>,
    jitter: &'a MaybeLeaf<Share>,
}

/// What of a policy counts where one of a class says nothing.
struct Around<'a> {
    policy: &'a Retry,
    /// Whether its longest delay is written, not made of the others.
    bounded: bool,
}

impl Check<'_> {
    /// Returns the policy, and those of single classes; none if nothing is retried.
    pub(super) fn retry(
        &mut self,
        field: &Maybe<OrWord<Nothing, raw::Retry>>,
    ) -> (Option<Retry>, BTreeMap<FailureClass, Retry>) {
        let raw = match get(field) {
            None => return (Some(Retry::default()), BTreeMap::new()),
            Some(OrWord::Word(_)) => return (None, BTreeMap::new()),
            Some(OrWord::Value(raw)) => raw,
        };
        let around = Around { policy: &Retry::default(), bounded: false };
        let policy = self.delays(&Written::all(raw), &around);
        let around = Around { policy: &policy, bounded: get(&raw.max_interval).is_some() };
        let by = get(&raw.by).map(|by| self.classes(by, &around)).unwrap_or_default();
        (Some(policy), by)
    }

    fn classes(&mut self, by: &RetryBy, around: &Around<'_>) -> BTreeMap<FailureClass, Retry> {
        let written = FailureClass::ALL.iter().filter_map(|class| Some((*class, get(of(by, *class))?)));
        let policy = |(class, written)| match written {
            &OrWord::Word(_) => (class, Retry { max_attempts: Some(0), ..around.policy.clone() }),
            OrWord::Value(raw) => (class, self.delays(&Written::of_class(raw), around)),
        };
        written.map(policy).collect()
    }

    fn delays(&mut self, raw: &Written<'_>, around: &Around<'_>) -> Retry {
        let Around { policy, bounded } = around;
        let initial_interval = time(raw.initial_interval, policy.initial_interval);
        let multiplier = get(raw.multiplier).map_or(policy.multiplier, |Scalar(Factor(factor))| *factor);
        let max_attempts = match get(raw.max_attempts) {
            None => policy.max_attempts,
            Some(OrWord::Word(_)) => None,
            Some(OrWord::Value(Scalar(Times(n)))) => Some(*n),
        };
        let max_interval = match located(raw.max_interval) {
            None if *bounded => {
                self.not_above(raw.initial_interval, initial_interval, policy.max_interval);
                policy.max_interval
            }
            // RT-1: the default bound is what five multiplications reach.
            None => Some(initial_interval.mul_f64(multiplier.powi(5)).min(LONGEST)),
            Some(Located { value: OrWord::Word(_), .. }) => None,
            Some(Located { value: OrWord::Value(Scalar(Time(longest))), place }) => {
                if *longest < initial_interval {
                    let (found, least) = (Time(*longest), Time(initial_interval));
                    self.fault(*place, format!("found {found}, less than `initialInterval`, which is {least}"));
                }
                Some(*longest)
            }
        };
        let jitter = get(raw.jitter).map_or(policy.jitter, |Scalar(Share(share))| *share);
        Retry { initial_interval, multiplier, max_attempts, max_interval, jitter }
    }

    /// Finds a first delay of a class that is longer than the longest of the policy around it.
    fn not_above(&mut self, field: &MaybeLeaf<Time>, initial: Duration, longest: Option<Duration>) {
        if let (Some(Located { place, .. }), Some(longest)) = (located(field), longest)
            && longest < initial
        {
            let (found, most) = (Time(initial), Time(longest));
            self.fault(*place, format!("found {found}, more than `maxInterval` of the policy around it, which is {most}; expected a `maxInterval` here, too"));
        }
    }
}

fn of(by: &RetryBy, class: FailureClass) -> &Maybe<OrWord<Nothing, ClassRetry>> {
    match class {
        FailureClass::Returned => &by.returned,
        FailureClass::Workflow => &by.workflow,
        FailureClass::Conflict => &by.conflict,
        FailureClass::Rejected => &by.rejected,
        FailureClass::Trap => &by.trap,
        FailureClass::Timeout => &by.timeout,
        FailureClass::OutOfMemory => &by.out_of_memory,
        FailureClass::Other => &by.other,
    }
}

// === impl Written ===

impl<'a> Written<'a> {
    fn all(raw: &'a raw::Retry) -> Self {
        let raw::Retry { initial_interval, multiplier, max_attempts, max_interval, jitter, by: _ } = raw;
        Self { initial_interval, multiplier, max_attempts, max_interval, jitter }
    }

    fn of_class(raw: &'a ClassRetry) -> Self {
        let ClassRetry { initial_interval, multiplier, max_attempts, max_interval, jitter } = raw;
        Self { initial_interval, multiplier, max_attempts, max_interval, jitter }
    }
}
