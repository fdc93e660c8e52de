//! Which namespaces are watched, and the label selectors of these and of objects.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::names::Name;
use super::super::raw::{self, Maybe};
use super::super::{Controller, MOST_SELECTED, MOST_WATCHES, Namespaces, Selected};
use super::{Check, SHARED, located};
use crate::object::labels::Selector;
use crate::yaml::{Leaf, ListOr, Located, OrWord, Scalar};

/// The most bytes of all selectors of primaries of one operator: they are compared with those of each other controller of the kind (`LC-3`).
const MOST_SELECTING: usize = 64 << 10;

impl Check<'_> {
    /// Finds an operator that watches too much by itself, and says how many namespaces each of its controllers may select (`NS-6`).
    pub(super) fn reach(&mut self, controllers: &mut BTreeMap<Arc<str>, Controller>, place: usize) {
        let selecting = controllers.values().map(selecting).sum();
        self.few(place, (selecting, "bytes of selectors of primaries"), MOST_SELECTING, SHARED);
        let (mut known, mut following) = (0, 0);
        for controller in controllers.values() {
            let watches = controller.watches();
            known += watches.known;
            following += watches.selected;
        }
        let found = known + following;
        if found > MOST_WATCHES {
            let message = format!(
                "found {found} watches of single namespaces, as each source watches each of its namespaces by itself; expected at most {MOST_WATCHES} in one operator: fewer namespaces or sources, or `namespaces: all`"
            );
            self.fault(place, message);
        }
        let most = (MOST_WATCHES.saturating_sub(known) / following.max(1)).clamp(1, MOST_SELECTED);
        for controller in controllers.values_mut() {
            if let Namespaces::Selected(selected) = &mut controller.namespaces {
                selected.most = most;
            }
        }
    }

    /// Returns where a controller watches.
    pub(super) fn controller_namespaces(&mut self, field: &Maybe<raw::ControllerNamespaces>) -> Namespaces {
        let Some(Located { value, place }) = located(field) else {
            return Namespaces::All;
        };
        match value {
            OrWord::Word(_) => Namespaces::All,
            OrWord::Value(OrWord::Word(_)) => Namespaces::Own,
            OrWord::Value(OrWord::Value(ListOr::List(listed))) => self.listed(listed, *place),
            OrWord::Value(OrWord::Value(ListOr::Value(raw::NamespaceSelector::Selector(selector)))) => {
                let selector = self
                    .need(selector, *place, "selector")
                    .map(|at| self.selector(&at.value, at.place, "expected `namespaces: all` to select all of them"));
                selector.map_or(Namespaces::All, |selector| {
                    Namespaces::Selected(Selected { selector, most: MOST_SELECTED, found: None })
                })
            }
        }
    }

    pub(super) fn namespaces(&mut self, field: &Maybe<raw::Namespaces>) -> Option<Namespaces> {
        let Located { value, place } = located(field)?;
        Some(match value {
            OrWord::Word(_) => Namespaces::All,
            OrWord::Value(OrWord::Word(_)) => Namespaces::Own,
            OrWord::Value(OrWord::Value(listed)) => self.listed(listed, *place),
        })
    }

    fn listed(&mut self, listed: &[Leaf<Name>], place: usize) -> Namespaces {
        if listed.is_empty() {
            self.fault(place, "found an empty list; expected at least one namespace, `all` or `own`");
        }
        let instead = ", as each is watched by itself; watch `all`, or use several operators";
        if !self.few(place, (listed.len(), "namespaces"), MOST_SELECTED, instead) {
            return Namespaces::Listed(BTreeSet::new());
        }
        let names: BTreeSet<Arc<str>> = self.set(listed, place, |Scalar(Name(name))| Arc::clone(name));
        Namespaces::Listed(names)
    }

    pub(super) fn label_selector(&mut self, field: &Maybe<String>) -> Option<Arc<str>> {
        let Located { value, place } = located(field)?;
        Some(self.selector(value, *place, "leave the field out to select everything"))
    }

    fn selector(&mut self, text: &str, place: usize, instead: &str) -> Arc<str> {
        match Selector::parse(text) {
            Ok(_) if text.trim().is_empty() => {
                self.fault(place, format!("found an empty text; {instead}"));
            }
            Ok(_) => {}
            Err(broken) => self.broken(place, text, &broken),
        }
        text.into()
    }
}

/// Returns how many bytes say which primaries a controller has.
fn selecting(controller: &Controller) -> usize {
    let Controller { namespaces, label_selector, field_selector, shard_selector, .. } = controller;
    let by_namespace = match namespaces {
        Namespaces::Selected(selected) => selected.selector.len(),
        Namespaces::All | Namespaces::Own | Namespaces::Listed(_) => 0,
    };
    let texts = [label_selector, field_selector].into_iter().flatten().map(|text| text.len());
    by_namespace + texts.sum::<usize>() + shard_selector.as_ref().map_or(0, |shard| shard.as_str().len())
}
