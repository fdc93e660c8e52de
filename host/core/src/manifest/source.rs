//! What a source of secondaries is: what it watches, and how primaries and secondaries find each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Bound, Filters, Keep, Namespaces, Stored};
use crate::cel::Expression;
use crate::object::Gvk;
use crate::object::pointer::Pointer;
use crate::object::shard::Shard;

/// A watched kind of secondaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The kind.
    pub gvk: Gvk,
    /// The cluster, by its name; `None`: that of the controller.
    pub cluster: Option<Arc<str>>,
    /// Where; `None`: where the primaries are.
    pub namespaces: Option<Namespaces>,
    /// Only those with these labels.
    pub label_selector: Option<Arc<str>>,
    /// Only those that these fields select.
    pub field_selector: Option<Arc<str>>,
    /// Only those whose hash is in these ranges.
    pub shard_selector: Option<Shard>,
    /// Objects in a page where they are listed in pages; default 500.
    pub page_size: u32,
    /// What is kept of them (`BC-2`); default everything.
    pub keep: Keep,
    /// How caches have that (`BC-4`); default plain.
    pub stored: Stored,
    /// Whether others that watch the same share its informer (`PO-4`); default true.
    pub shared: bool,
    /// Its turn when the controller starts (`ES-2`), the lowest first; `None`: with the primaries, after all others.
    pub start_priority: Option<u32>,
    /// How much of them is in memory whole (`BC-1`); `None`: all.
    pub bounded: Option<Bound>,
    /// How the primaries are found (IM rules).
    pub mapper: Mapper,
    /// How the objects of a primary are found (`IM-4`); `None`: that follows from the mapper.
    pub secondaries: Option<Secondaries>,
    /// Whether texts in objects and primaries, and indexes, may lead from one namespace into another; default false.
    pub across_namespaces: bool,
    /// Which changes make the primaries run (`IS-1`).
    pub filters: Filters,
    /// Indexes, by name (IX rules).
    pub indexes: BTreeMap<Arc<str>, Keys>,
}

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

// === impl ===

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

impl Keys {
    /// Whether finding them costs much more than a look at the text of an object.
    pub fn is_costly(&self) -> bool {
        match self {
            Self::Pointer(_) => false,
            Self::Cel(_) => true,
        }
    }
}
