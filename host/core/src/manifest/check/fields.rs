//! Reads single fields, with what holds where they are left out.

use std::time::Duration;

use super::super::raw::{self, Maybe, MaybeLeaf, defaults};
use super::super::units::{Objects, Time, Workers};
use crate::cluster::FieldValidation;
use crate::yaml::{Located, OrWord, Scalar, Slot};

/// A time, or none.
type Interval = Maybe<OrWord<raw::Nothing, Scalar<Time>>>;

/// Returns the value of a field, if it is there and right.
pub(super) fn get<T>(field: &Maybe<T>) -> Option<&T> {
    located(field).map(|located| &located.value)
}

pub(super) fn located<T>(field: &Maybe<T>) -> Option<&Located<T>> {
    field.as_ref().and_then(Slot::read)
}

/// Returns the field of a manifest, or that of the defaults if it is left out.
pub(super) fn or<'f, T>(field: &'f Maybe<T>, default: &'f Maybe<T>) -> &'f Maybe<T> {
    match field {
        Some(Slot::Read(_) | Slot::Wrong) => field,
        Some(Slot::Missing) | None => default,
    }
}

pub(super) fn time(field: &MaybeLeaf<Time>, default: Duration) -> Duration {
    get(field).map_or(default, |Scalar(Time(duration))| *duration)
}

/// Returns a time, if there is to be one.
fn interval(field: &Interval, default: Option<Duration>) -> Option<Duration> {
    get(field).map_or(default, |field| match field {
        OrWord::Word(_) => None,
        OrWord::Value(Scalar(Time(interval))) => Some(*interval),
    })
}

pub(super) fn min_reschedule(field: &Interval) -> Duration {
    interval(field, Some(Duration::from_millis(100))).unwrap_or_default()
}

pub(super) fn max_interval(field: &Interval) -> Option<Duration> {
    interval(field, Some(Duration::from_hours(10)))
}

pub(super) fn run_timeout(field: &Interval) -> Option<Duration> {
    interval(field, None)
}

pub(super) fn workers(field: &MaybeLeaf<Workers>, default: usize) -> usize {
    get(field).map_or(default, |Scalar(Workers(n))| usize::try_from(*n).unwrap_or(default))
}

pub(super) fn field_validation(raw: &raw::Controller, defaults: &defaults::Controllers) -> FieldValidation {
    get(or(&raw.field_validation, &defaults.field_validation)).copied().unwrap_or_default()
}

pub(super) fn page_size(field: &MaybeLeaf<Objects>) -> u32 {
    get(field).map_or(500, |Scalar(Objects(n))| *n)
}

pub(super) fn flag(field: &Maybe<bool>, default: bool) -> bool {
    get(field).copied().unwrap_or(default)
}
