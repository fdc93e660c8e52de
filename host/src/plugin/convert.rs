//! The contract's types, as the daemon has them: what a component answers and asks for.

use std::time::Duration;

use capstan_core::cluster;
use capstan_core::guest::{self, Answer};
use capstan_core::object;
use capstan_core::text::kept;
use capstan_core::wire::FEW;

use super::bindings::capstan::operator::{cache, log, memo, operations, recorder, types};
use super::bindings::exports::capstan::operator::{
    cleaner, condition, description, error_handler, external, inbound, poller, reconciler, resource_poller,
    retry_policy, validator,
};
use super::output;

/// Makes of each word of one type that of the same name of another, with what it stands for.
macro_rules! same {
    ($from:ty => $to:ty { $($word:ident $(($what:ident))?),* $(,)? }) => {
        impl From<$from> for $to {
            fn from(from: $from) -> Self {
                type Word = $from;
                match from {
                    $(Word::$word $(($what))? => Self::$word $(($what))?,)*
                }
            }
        }
    };
}

mod outward;

/// The longest `detail` of a condition, in bytes: those of all conditions of a workflow are kept until its run ends.
const DETAIL: usize = 16 << 10;

// === answers of exports ===

impl From<reconciler::UpdateControl> for guest::UpdateControl {
    fn from(control: reconciler::UpdateControl) -> Self {
        Self { update: control.update.into(), reschedule: control.reschedule_ms.map(millis) }
    }
}

same!(reconciler::PrimaryUpdate => guest::PrimaryUpdate { Nothing, Object(json), Status(json), ObjectAndStatus(json) });

impl From<cleaner::DeleteControl> for guest::DeleteControl {
    fn from(control: cleaner::DeleteControl) -> Self {
        match control {
            cleaner::DeleteControl::RemoveFinalizer => Self::RemoveFinalizer,
            cleaner::DeleteControl::KeepFinalizer(again) => Self::KeepFinalizer(again.map(millis)),
        }
    }
}

impl From<error_handler::ErrorControl> for guest::ErrorControl {
    fn from(control: error_handler::ErrorControl) -> Self {
        match control {
            error_handler::ErrorControl::Unhandled => Self::Unhandled,
            error_handler::ErrorControl::Handled(handling) => {
                Self::Handled { status: handling.status, next: handling.next.into() }
            }
        }
    }
}

impl From<retry_policy::NextRetry> for guest::NextRetry {
    fn from(next: retry_policy::NextRetry) -> Self {
        match next {
            retry_policy::NextRetry::Declared => Self::Declared,
            retry_policy::NextRetry::AfterMs(ms) => Self::After(millis(ms)),
            retry_policy::NextRetry::Stop => Self::Stop,
        }
    }
}

impl From<error_handler::NextStep> for guest::NextStep {
    fn from(step: error_handler::NextStep) -> Self {
        match step {
            error_handler::NextStep::Retry => Self::Retry,
            error_handler::NextStep::RetryAfterMs(ms) => Self::RetryAfter(millis(ms)),
            error_handler::NextStep::Stop => Self::Stop,
            error_handler::NextStep::RescheduleMs(ms) => Self::Reschedule(millis(ms)),
        }
    }
}

same!(types::MatchResult => guest::MatchResult { Matches, Differs(what) });

impl From<condition::ConditionResult> for guest::ConditionResult {
    fn from(result: condition::ConditionResult) -> Self {
        let condition::ConditionResult { met, detail } = result;
        Self { met, detail }
    }
}

impl From<validator::Problem> for guest::Invalid {
    fn from(problem: validator::Problem) -> Self {
        let validator::Problem { field, message } = problem;
        Self { field, message }
    }
}

impl From<external::Created> for guest::Created {
    fn from(created: external::Created) -> Self {
        let external::Created { actual, state } = created;
        Self { actual, state }
    }
}

/// Reads an answer that may be too much; an error of the component stays one.
pub(super) fn bounded<T, A>(
    answer: Result<T, String>,
    read: impl FnOnce(T) -> Result<A, TooMany>,
) -> wasmtime::Result<Result<A, String>> {
    answer.map_or_else(|message| Ok(Err(message)), |answer| Ok(Ok(read(answer)?)))
}

/// Returns the answer of `desired-set`.
pub(super) fn desired_set(objects: Vec<types::Json>) -> Result<guest::DesiredSet, TooMany> {
    Ok(guest::DesiredSet { objects: few(objects)? })
}

/// Returns the answer of `poll`.
pub(super) fn polled_all(primaries: Vec<poller::PrimaryResources>) -> Result<guest::PolledAll, TooMany> {
    let one = |primary: poller::PrimaryResources| {
        let poller::PrimaryResources { primary, resources } = primary;
        Ok(guest::PrimaryThings { primary: primary.into(), things: few(resources)? })
    };
    let primaries = few(primaries)?.into_iter().map(one);
    Ok(guest::PolledAll { primaries: primaries.collect::<Result<_, _>>()? })
}

/// Returns the answer of `poll-one`.
pub(super) fn polled_one(result: resource_poller::PollResult) -> Result<guest::PolledOne, TooMany> {
    let resource_poller::PollResult { resources, again_ms } = result;
    Ok(guest::PolledOne { things: few(resources)?, again: again_ms.map(millis) })
}

/// Returns the answer of `receive`.
pub(super) fn received(answer: inbound::InboundAnswer) -> Result<guest::InboundAnswer, TooMany> {
    let inbound::InboundAnswer { status, body, events } = answer;
    let event = |types::SourceEvent { primary, learned }| guest::SourceEvent {
        primary: primary.into(),
        learned: match learned {
            types::Learned::Wake => guest::Learned::Wake,
            types::Learned::Present(thing) => guest::Learned::Present(thing),
            types::Learned::Gone(id) => guest::Learned::Gone(id),
        },
    };
    Ok(guest::InboundAnswer { status, body, events: few(events)?.into_iter().map(event).collect() })
}

/// Returns the answer of `to-primaries` or `to-secondaries`.
pub(super) fn named(keys: Vec<types::ObjectKey>) -> Result<guest::Named, TooMany> {
    Ok(guest::Named { keys: few(keys)?.into_iter().map(Into::into).collect() })
}

/// Returns the answer of `describe`.
pub(super) fn described(entries: Vec<description::KnownNames>) -> Result<guest::Description, TooMany> {
    let entry = |known: description::KnownNames| {
        let description::KnownNames { exported, controller, names } = known;
        let names = names.map_or(Ok(guest::Names::Open), |names| few(names).map(guest::Names::These))?;
        Ok(guest::KnownNames { exported, controller, names })
    };
    let entries = few(entries)?.into_iter().map(entry);
    Ok(guest::Description { entries: entries.collect::<Result<_, _>>()? })
}

/// An export answers with a longer list than it may.
#[derive(Debug, thiserror::Error)]
#[error("it answered with a list of {0}, and may with {FEW}")]
pub(super) struct TooMany(usize);

/// Returns a list that another process can say, too.
fn few<T>(list: Vec<T>) -> Result<Vec<T>, TooMany> {
    if list.len() > FEW { Err(TooMany(list.len())) } else { Ok(list) }
}

/// A condition has a longer detail than it may.
#[derive(Debug, thiserror::Error)]
#[error("`is-met` answered with a `detail` of {0} bytes, and may with {DETAIL}")]
struct LongDetail(usize);

/// A component describes more than it may.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TooMuch(String);

/// Returns an answer within its bounds, whoever gave it: a component, or another process for it.
pub(super) fn checked(answer: Answer) -> wasmtime::Result<Answer> {
    let soon = |time: Duration| time.min(millis(u32::MAX));
    Ok(match answer {
        Answer::Reconcile(control) => {
            Answer::Reconcile(guest::UpdateControl { reschedule: control.reschedule.map(soon), ..control })
        }
        Answer::Cleanup(guest::DeleteControl::KeepFinalizer(again)) => {
            Answer::Cleanup(guest::DeleteControl::KeepFinalizer(again.map(soon)))
        }
        Answer::HandleError(guest::ErrorControl::Handled { status, next: guest::NextStep::Reschedule(time) }) => {
            Answer::HandleError(guest::ErrorControl::Handled { status, next: guest::NextStep::Reschedule(soon(time)) })
        }
        Answer::HandleError(guest::ErrorControl::Handled { status, next: guest::NextStep::RetryAfter(time) }) => {
            Answer::HandleError(guest::ErrorControl::Handled { status, next: guest::NextStep::RetryAfter(soon(time)) })
        }
        Answer::DecideRetry(guest::NextRetry::After(time)) => Answer::DecideRetry(guest::NextRetry::After(soon(time))),
        Answer::Match(guest::MatchResult::Differs(what)) => Answer::Match(guest::MatchResult::Differs(kept(what))),
        Answer::IsMet(guest::ConditionResult { detail: Some(detail), .. }) if detail.len() > DETAIL => {
            return Err(LongDetail(detail.len()).into());
        }
        Answer::Describe(description) => Answer::Describe(description.bounded().map_err(TooMuch)?),
        Answer::PollOne(guest::PolledOne { things, again }) => {
            Answer::PollOne(guest::PolledOne { things, again: again.map(soon) })
        }
        same @ (Answer::Start
        | Answer::Cleanup(_)
        | Answer::HandleError(_)
        | Answer::DecideRetry(_)
        | Answer::Initialize(())
        | Answer::Validate(_)
        | Answer::Desired(_)
        | Answer::DesiredSet(_)
        | Answer::Create(_)
        | Answer::Update(_)
        | Answer::Remove(())
        | Answer::Match(_)
        | Answer::IsMet(_)
        | Answer::Poll(_)
        | Answer::Receive(_)
        | Answer::Accepts(_)
        | Answer::ToPrimaries(_)
        | Answer::ToSecondaries(_)) => same,
    })
}

// === arguments of exports ===

// === arguments of imports ===

impl TryFrom<types::KindRef> for object::Gvk {
    type Error = object::Error;

    fn try_from(kind: types::KindRef) -> Result<Self, object::Error> {
        Self::parse(&kind.api_version, &kind.kind)
    }
}

impl From<types::ObjectKey> for object::ObjectRef {
    fn from(key: types::ObjectKey) -> Self {
        Self { namespace: key.namespace.map(Into::into), name: key.name.into() }
    }
}

impl TryFrom<types::ObjectRef> for guest::ObjectTarget {
    type Error = object::Error;

    fn try_from(target: types::ObjectRef) -> Result<Self, object::Error> {
        let gvk = object::Gvk::parse(&target.api_version, &target.kind)?;
        Ok(Self { gvk, key: types::ObjectKey { namespace: target.namespace, name: target.name }.into() })
    }
}

impl TryFrom<cache::Place> for guest::Place {
    type Error = object::Error;

    fn try_from(place: cache::Place) -> Result<Self, object::Error> {
        Ok(match place {
            cache::Place::Source(name) => Self::Source(name),
            cache::Place::Kind(kind) => Self::Kind(kind.try_into()?),
            cache::Place::Primaries => Self::Primaries,
        })
    }
}

impl From<cache::Selection> for guest::Selection {
    fn from(selection: cache::Selection) -> Self {
        match selection {
            cache::Selection::Related => Self::Related,
            cache::Selection::Namespaced(namespace) => Self::Namespaced(namespace),
            cache::Selection::Everywhere => Self::Everywhere,
            cache::Selection::Indexed(entry) => Self::Indexed { index: entry.index, key: entry.key },
        }
    }
}

impl TryFrom<cache::Query> for guest::Query {
    type Error = object::Error;

    fn try_from(query: cache::Query) -> Result<Self, object::Error> {
        let cache::Query { place, selection, labels, fields, newest_only, limit, after } = query;
        Ok(Self { place: place.try_into()?, selection: selection.into(), labels, fields, newest_only, limit, after })
    }
}

impl From<operations::WriteOptions> for guest::WriteOptions {
    fn from(options: operations::WriteOptions) -> Self {
        let operations::WriteOptions { mode, compare_by, subresource, source, actual } = options;
        Self { mode: mode.into(), compare_by: compare_by.map(Into::into), subresource, source, actual }
    }
}

same!(operations::WriteMode => guest::WriteMode { Usual, MatchAndFilter, Optimistic, CacheOnly, ForceFilter, Plain });

same!(operations::Comparison => guest::Comparison { ByVerb, Applied, Generic, StatusOnly, Equality });

impl From<operations::RemoveOptions> for cluster::Deletion {
    fn from(options: operations::RemoveOptions) -> Self {
        let operations::RemoveOptions { propagation, uid, resource_version, grace_seconds } = options;
        let propagation = match propagation {
            operations::Propagation::Usual => None,
            operations::Propagation::Background => Some(cluster::Propagation::Background),
            operations::Propagation::Foreground => Some(cluster::Propagation::Foreground),
            operations::Propagation::Orphan => Some(cluster::Propagation::Orphan),
        };
        Self { propagation, uid, version: resource_version, grace_seconds }
    }
}

same!(memo::Lifetime => guest::Lifetime { Run, Primary, Plugin });

impl From<recorder::Event> for guest::Event {
    fn from(event: recorder::Event) -> Self {
        let recorder::Event { severity, reason, message, key, action, component, labels, annotations } = event;
        let warning = match severity {
            recorder::Severity::Normal => false,
            recorder::Severity::Warning => true,
        };
        let tags = |pairs: Vec<types::Pair>| pairs.into_iter().map(|pair| (pair.name, pair.value)).collect();
        let (labels, annotations) = (tags(labels), tags(annotations));
        Self { warning, reason, message, key, action, component, labels, annotations }
    }
}

same!(log::Level => output::Level { Trace, Debug, Info, Warn, Error });

// === answers of imports ===

/// The contract's milliseconds as a duration.
fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
