//! Decides how many watches of single namespaces a controller has (`NS-6`): each is a connection, a cache and a list at its start.

use std::collections::BTreeMap;

use super::{Controller, MappingKeys, Namespaces};

/// The most namespaces of one list, and that a selector may select.
pub const MOST_SELECTED: usize = 500;

/// The most watches of single namespaces of one operator: those of a controller with three sources in as many namespaces as it may select. Each
/// takes two descriptors and some 100 KiB, and up to a few milliseconds at its start.
pub const MOST_WATCHES: usize = 4 * MOST_SELECTED;

/// The watches of single namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watches {
    /// Those of which the manifest says where they are.
    pub(super) known: usize,
    /// Those in each namespace that the controller selects.
    pub(super) selected: usize,
}

impl Namespaces {
    /// Returns how many watches of single namespaces a source has that looks there.
    pub fn watches(&self) -> usize {
        match self {
            Self::All | Self::Own => 0,
            Self::Listed(names) => names.len(),
            Self::Selected(selected) => selected.found.as_ref().map_or(0, |found| found.len()),
        }
    }
}

impl Controller {
    /// Returns the watches of what the manifest declares. Of kinds that live in no namespace too many are counted, for nobody knows yet which these are.
    pub(super) fn watches(&self) -> Watches {
        let own =
            [&self.namespaces].into_iter().chain(std::iter::repeat_n(&self.namespaces, self.sources_of_dependents()));
        let sources = self.sources.values().map(|source| source.namespaces.as_ref().unwrap_or(&self.namespaces));
        let mut watches = Watches::default();
        for namespaces in own.chain(sources) {
            match namespaces {
                Namespaces::Selected(_) => watches.selected += 1,
                Namespaces::All | Namespaces::Own | Namespaces::Listed(_) => watches.known += namespaces.watches(),
            }
        }
        watches
    }

    /// Returns how many sources there are for dependents that name none: one for each kind and mapping (`KD-10`).
    fn sources_of_dependents(&self) -> usize {
        let without = self.dependents().filter(|(_, dependent)| dependent.source.is_none());
        let mut kinds = BTreeMap::<_, Vec<Option<&MappingKeys>>>::new();
        for (_, dependent) in without {
            let mapping = (!dependent.garbage_collected).then_some(&dependent.mapping);
            let mappings =
                kinds.entry((&dependent.gvk.group, &dependent.gvk.version, &dependent.gvk.kind)).or_default();
            if !mappings.contains(&mapping) {
                mappings.push(mapping);
            }
        }
        kinds.values().map(Vec::len).sum()
    }
}
