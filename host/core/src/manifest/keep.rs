//! What a manifest declares of caches: which fields of objects they keep (BC).

use std::time::Duration;

use super::filters::Question;
use super::filters::{OBJECT, OLD_OBJECT};
use super::{Controller, Filters, Keys, Mapper, Source};
use crate::object::fields::Fields;
use crate::object::pointer::Pointer;

/// What a cache keeps of objects, beside what identifies them and ties them to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Everything.
    #[default]
    Whole,
    /// Their metadata alone.
    Metadata,
    /// The fields under these pointers.
    Only(Vec<Pointer>),
    /// All fields but those under these pointers.
    Without(Vec<Pointer>),
}

/// How a cache has what it keeps of objects (`BC-4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stored {
    /// As text.
    #[default]
    Plain,
    /// Packed, where that is smaller.
    Packed,
}

impl Stored {
    /// Returns true if it is packed.
    pub fn is_packed(self) -> bool {
        self == Self::Packed
    }
}

/// A path of names to a field that something looks at; the empty one leads to the whole object.
pub(super) type Path = Vec<String>;

impl Keep {
    /// Returns the fields that are kept.
    pub fn fields(&self) -> Fields {
        match self {
            Self::Whole => Fields::whole(),
            Self::Metadata => Fields::metadata(),
            Self::Only(pointers) => Fields::only(pointers),
            Self::Without(pointers) => Fields::without(pointers),
        }
    }
}

/// How much of a bounded source is in memory whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The most objects; default 1000.
    pub objects: usize,
    /// The most bytes of them; default 8 MiB.
    pub bytes: usize,
    /// They are forgotten when they have not been used for so long; `None`: never for that.
    pub unused: Option<Duration>,
}

impl Controller {
    /// Returns the fields that stay of primaries that are forgotten: what leads from them to secondaries and to keys of indexes.
    pub fn stays(&self) -> Fields {
        let named = self.sources.values().filter_map(|source| source.secondaries.as_ref()?.keys());
        Fields::only(pointers(self.indexes.values().chain(named))).meet(&self.keep.fields())
    }
}

impl Source {
    /// Returns the fields that stay of objects that are forgotten: what leads from them to primaries and to keys of indexes.
    pub fn stays(&self) -> Fields {
        let keys = self.mapper.keys().into_iter().chain(self.indexes.values());
        self.with_mapped(Fields::only(pointers(keys))).meet(&self.fields())
    }

    /// Returns the fields that it keeps of its objects, with the annotations by which it finds their primaries.
    pub fn fields(&self) -> Fields {
        self.with_mapped(self.keep.fields())
    }

    /// Returns fields with the annotations that lead to primaries.
    fn with_mapped(&self, fields: Fields) -> Fields {
        let Mapper::Annotations(keys) = &self.mapper else {
            return fields;
        };
        let keys = [Some(&keys.name), keys.namespace.as_ref(), keys.kind.as_ref()];
        fields.with_annotations(keys.into_iter().flatten().map(|key| &**key))
    }

    /// Returns the fields of its objects at which its settings look, each with the name of that setting.
    pub(super) fn looks_at(&self) -> Vec<(&'static str, Path)> {
        let mapper = self.mapper.keys().into_iter().flat_map(|keys| named("mapper", of_keys(keys, OBJECT)));
        mapper.chain(of_both(&self.filters, self.indexes.values())).collect()
    }
}

/// Returns the fields at which filters and indexes look.
pub(super) fn of_both<'k>(
    filters: &Filters,
    indexes: impl Iterator<Item = &'k Keys>,
) -> impl Iterator<Item = (&'static str, Path)> {
    let Filters { on_add, on_update, on_delete, generic } = filters;
    let asked = [on_add, on_update, on_delete, generic].into_iter().flatten().filter_map(Question::cel);
    let filters = asked.flat_map(|cel| cel.paths(OBJECT).into_iter().chain(cel.paths(OLD_OBJECT)));
    let indexes = indexes.flat_map(|keys| of_keys(keys, OBJECT));
    let (filters, indexes): (Vec<_>, Vec<_>) = (filters.collect(), indexes.collect());
    named("filters", filters).chain(named("indexes", indexes))
}

/// Returns the fields at which keys look that call the object `variable`.
pub(super) fn of_keys(keys: &Keys, variable: &str) -> Vec<Path> {
    match keys {
        Keys::Pointer(pointer) => vec![pointer.path().iter().map(ToString::to_string).collect()],
        Keys::Cel(cel) => cel.paths(variable),
    }
}

/// Returns fields with the name of the setting that looks at them.
pub(super) fn named(setting: &'static str, paths: Vec<Path>) -> impl Iterator<Item = (&'static str, Path)> {
    paths.into_iter().map(move |path| (setting, path))
}

/// Returns the pointers among keys.
fn pointers<'k>(keys: impl Iterator<Item = &'k Keys>) -> impl Iterator<Item = &'k Pointer> {
    keys.filter_map(|keys| match keys {
        Keys::Pointer(pointer) => Some(pointer),
        Keys::Cel(_) => None,
    })
}
