//! Knows which namespaces a controller's manifest selects, and which these are (NS-5).

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_core::manifest::{Namespaces, Remote, Selected};

use super::declared::Declared;

/// Namespaces by their names.
pub(super) type Names = Arc<BTreeSet<Arc<str>>>;

/// What a manifest selects, and which these are.
#[derive(Default)]
pub(super) struct Selection {
    /// The version that was declared last, if it selects.
    declared: Option<Arc<Declared>>,
    /// What was found last.
    found: Option<(At, Names)>,
}

/// What is selected.
#[derive(Clone, Debug)]
pub(super) struct At {
    /// The cluster; none: that of the daemon.
    pub(super) remote: Option<Remote>,
    pub(super) selector: Arc<str>,
    /// The most that may be watched (`NS-6`).
    pub(super) most: usize,
}

// === impl Selection ===

impl Selection {
    /// Takes in a version that is declared. Returns it with the namespaces that it selects, as far as they are known.
    pub(super) fn declare(&mut self, declared: Declared) -> Declared {
        let Some(at) = At::of(&declared) else {
            *self = Self::default();
            return declared;
        };
        self.found = self.found.take().filter(|(known, _)| *known == at);
        let within = declared.within(self.found.as_ref().map(|(_, names)| Arc::clone(names)));
        self.declared = Some(Arc::new(declared));
        within
    }

    /// Takes in which namespaces are selected. Returns the version that watches these; none if others are wanted by now.
    pub(super) fn find(&mut self, at: &At, names: &Names) -> Option<Declared> {
        let declared = self.declared.as_ref().filter(|declared| At::of(declared).as_ref() == Some(at))?;
        self.found = Some((at.clone(), Arc::clone(names)));
        Some(declared.within(Some(Arc::clone(names))))
    }

    /// Returns the namespaces that were found last, if they are these.
    pub(super) fn known(&self, at: &At) -> Option<Names> {
        self.found.as_ref().filter(|(known, _)| known == at).map(|(_, names)| Arc::clone(names))
    }

    /// Returns what is to be watched for it.
    pub(super) fn wanted(&self) -> Option<(At, Arc<Declared>)> {
        let declared = self.declared.as_ref()?;
        Some((At::of(declared)?, Arc::clone(declared)))
    }

    /// Returns the namespaces that are selected; none if the manifest selects none, or they are not known.
    pub(super) fn names(&self) -> Option<Vec<String>> {
        self.found.as_ref().map(|(_, names)| names.iter().map(ToString::to_string).collect())
    }
}

impl PartialEq for At {
    /// Whether the same is selected, however many of it may be watched.
    fn eq(&self, other: &Self) -> bool {
        (&self.remote, &self.selector) == (&other.remote, &other.selector)
    }
}

impl At {
    pub(super) fn of(declared: &Declared) -> Option<Self> {
        let spec = &declared.spec;
        match &spec.namespaces {
            Namespaces::Selected(Selected { selector, most, .. }) => {
                let remote = spec.cluster.as_ref().and_then(|cluster| spec.remotes.get(cluster)).cloned();
                Some(Self { remote, selector: Arc::clone(selector), most: *most })
            }
            Namespaces::All | Namespaces::Own | Namespaces::Listed(_) => None,
        }
    }
}
