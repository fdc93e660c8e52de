//! What a manifest declares of how objects and primaries are found by one another.

use std::sync::Arc;

use crate::cel::Expression;
use crate::object::pointer::Pointer;

/// How the primaries of a secondary are found (`IM-1`, `IM-2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapper {
    /// Owner references of the primary's kind and group.
    OwnerReference,
    /// Owner references of the primary's kind, whatever their group.
    OwnerKind,
    /// Annotations with these keys.
    Annotations(MappingKeys),
    /// Labels with these keys.
    Labels(MappingKeys),
    /// Texts of the object: `name` or `namespace/name` of primaries.
    Named(Keys),
    /// The component: the name under which its export `mapper` is called.
    Export(Arc<str>),
    /// An index of the primaries.
    Index(ByIndex),
}

/// How the secondaries of a primary are found, where the primary says it (`IM-4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secondaries {
    /// Texts of the primary: `name` or `namespace/name` of secondaries.
    Named(Keys),
    /// The component: the name under which its export `secondary-mapper` is called.
    Export(Arc<str>),
}

/// An index of the primaries, in which the keys of a secondary are looked up (`IX-2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByIndex {
    /// Its name.
    pub name: Arc<str>,
    /// The keys of a secondary; default: its name.
    pub key: Keys,
}

/// Where the texts of an object are that say under which keys it is found, or name others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A JSON pointer to a string or a list of strings.
    Pointer(Pointer),
    /// A CEL expression for a string or a list of strings.
    Cel(Expression),
}

/// Keys of annotations or labels that name a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingKeys {
    /// Holds the name; default `capstan.dev/primary-name`.
    pub name: Arc<str>,
    /// Holds the namespace; `None`: the secondary's own; default `capstan.dev/primary-namespace`.
    pub namespace: Option<Arc<str>>,
    /// Holds the kind as `group/version/Kind`; not looked at if absent; default `capstan.dev/primary-type`.
    pub kind: Option<Arc<str>>,
    /// Whether an object in one namespace may name a primary in another; default false.
    pub across_namespaces: bool,
}

impl Default for MappingKeys {
    fn default() -> Self {
        Self {
            name: "capstan.dev/primary-name".into(),
            namespace: Some("capstan.dev/primary-namespace".into()),
            kind: Some("capstan.dev/primary-type".into()),
            across_namespaces: false,
        }
    }
}

impl Mapper {
    /// Returns the keys by which it finds primaries, if it does.
    pub(super) fn keys(&self) -> Option<&Keys> {
        match self {
            Self::Named(keys) | Self::Index(ByIndex { key: keys, .. }) => Some(keys),
            Self::OwnerReference | Self::OwnerKind | Self::Annotations(_) | Self::Labels(_) | Self::Export(_) => None,
        }
    }
}

impl Secondaries {
    /// Returns the keys by which it finds secondaries, if it does.
    pub(super) fn keys(&self) -> Option<&Keys> {
        match self {
            Self::Named(keys) => Some(keys),
            Self::Export(_) => None,
        }
    }
}

impl Keys {
    /// Whether finding them costs much more than a look at the text of an object.
    pub fn is_costly(&self) -> bool {
        match self {
            Self::Pointer(_) => false,
            Self::Cel(_) => true,
        }
    }
}
