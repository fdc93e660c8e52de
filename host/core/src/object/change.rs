//! Defines a change of an object, and how those see it who see a part of objects.

use super::Object;

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new.
    Added(Object),
    /// The object has changed.
    Updated {
        /// The object before the change.
        old: Object,
        /// The object after the change.
        new: Object,
    },
    /// The object has been deleted.
    Deleted {
        /// The object as it was last seen.
        last: Object,
        /// True if the deletion itself was missed (a list did not contain the object), so that there may have been
        /// later versions.
        unknown: bool,
    },
}

impl Change {
    /// Returns the object as it is, or as it was last seen.
    pub fn object(&self) -> &Object {
        match self {
            Self::Added(object) | Self::Updated { new: object, .. } | Self::Deleted { last: object, .. } => object,
        }
    }

    /// Returns the change as it is to those who see of objects what `show` returns; `None` if that is nothing. A new object of
    /// which the old one can't be seen is an addition.
    pub fn seen(self, show: impl Fn(Object) -> Option<Object>) -> Option<Self> {
        Some(match self {
            Self::Added(object) => Self::Added(show(object)?),
            Self::Updated { old, new } => match (show(old), show(new)?) {
                (Some(old), new) => Self::Updated { old, new },
                (None, new) => Self::Added(new),
            },
            Self::Deleted { last, unknown } => Self::Deleted { last: show(last)?, unknown },
        })
    }

    /// Returns the old object if it was deleted and another one has been created under the same name.
    pub fn made_again(&self) -> Option<&Object> {
        match self {
            Self::Updated { old, new } => (old.header().uid != new.header().uid).then_some(old),
            Self::Added(_) | Self::Deleted { .. } => None,
        }
    }
}
