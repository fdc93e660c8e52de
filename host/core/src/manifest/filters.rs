//! What a manifest declares of filters: which changes of objects make primaries run.

use crate::cel::Expression;

/// Questions about changes; one that is missing lets everything pass (`CF-5`, `IS-1`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Asked about additions, by `object`.
    pub on_add: Option<Expression>,
    /// Asked about updates, by `object` and `oldObject`.
    pub on_update: Option<Expression>,
    /// Asked about deletions, by `object` and `finalStateUnknown`; none for primaries (`CF-4`).
    pub on_delete: Option<Expression>,
    /// Asked about every change, by `object`.
    pub generic: Option<Expression>,
}

/// The variable that holds the object as it is, or as it was last seen.
pub const OBJECT: &str = "object";
/// The variable that holds an object as it was before an update.
pub const OLD_OBJECT: &str = "oldObject";
/// The variable that is true if a deletion was missed, so that there may have been later versions.
pub const UNKNOWN: &str = "finalStateUnknown";
