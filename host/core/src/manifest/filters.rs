//! What a manifest declares of filters: which changes of objects make primaries run.

use std::sync::Arc;

use crate::cel::Expression;

/// Questions about changes; one that is missing lets everything pass (`CF-5`, `IS-1`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Asked about additions, by `object`.
    pub on_add: Option<Question>,
    /// Asked about updates, by `object` and `oldObject`.
    pub on_update: Option<Question>,
    /// Asked about deletions, by `object` and `finalStateUnknown`; none for primaries (`CF-4`).
    pub on_delete: Option<Question>,
    /// Asked about every change, by `object`.
    pub generic: Option<Question>,
}

/// How a question about a change is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// By an expression.
    Cel(Expression),
    /// By the component: the name under which its export `filter` is called.
    Export(Arc<str>),
}

impl Question {
    /// Returns the expression, if it is one.
    pub fn cel(&self) -> Option<&Expression> {
        match self {
            Self::Cel(cel) => Some(cel),
            Self::Export(_) => None,
        }
    }
}

/// The variable that holds the object as it is, or as it was last seen.
pub const OBJECT: &str = "object";
/// The variable that holds an object as it was before an update.
pub const OLD_OBJECT: &str = "oldObject";
/// The variable that is true if a deletion was missed, so that there may have been later versions.
pub const UNKNOWN: &str = "finalStateUnknown";
