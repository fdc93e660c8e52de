//! Which namespaces are watched, and the label selectors of these and of objects.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::names::Name;
use super::super::raw::{self, Maybe};
use super::super::{Namespaces, Selected};
use super::{Check, located};
use crate::object::labels::Selector;
use crate::yaml::{Leaf, ListOr, Located, OrWord, Scalar};

impl Check<'_> {
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
                selector.map_or(Namespaces::All, |selector| Namespaces::Selected(Selected { selector, found: None }))
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
