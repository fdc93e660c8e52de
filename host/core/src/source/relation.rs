//! Finds the primaries of a secondary, and the secondaries of a primary, where that takes more than the secondary: an index
//! of the primaries, or what a primary says itself (IM).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::callback::{Asked, Callback};
use super::keys::{named, texts};
use super::mapper::Mapper;
use super::state::{Candidates, State};
use super::{Doubt, Role, Source};
use crate::dependent::Sign;
use crate::manifest::Keys;
use crate::object::{Object, ObjectRef};

/// The index, beside those that are declared, by which secondaries are found that a primary leads to by an index.
pub(super) const MAPPED: &str = "(mapped)";

/// Why it is not known which secondaries a primary has.
const NOT_ASKED: &str = "its `secondaries` has not been asked about it yet";

/// The secondaries of a primary, as it says itself.
enum Led {
    /// Those with these names.
    Named(BTreeSet<ObjectRef>),
    /// Those under these keys, in the namespace of the primary or anywhere.
    Keyed(BTreeSet<Box<str>>),
}

impl Source {
    /// Lets the source look into the primaries of its controller, and know the own writes that they know of.
    #[must_use]
    pub fn beside(self, primaries: &Arc<Self>) -> Self {
        let source = Self { primaries: Some(Arc::clone(primaries)), written: primaries.written.clone(), ..self };
        // An index of theirs that costs much is behind: so is what is found by it.
        source.clear_look_ups();
        source
    }

    /// Returns the labels or annotations by which objects are found to belong to a primary.
    pub fn signs(&self) -> Vec<Sign<'_>> {
        match &self.spec.role {
            Role::Secondary(mapper) => mapper.signs(),
            Role::Primary => Vec::new(),
        }
    }

    /// Returns the primaries that a secondary belongs to (`IM-3`).
    pub(super) fn primaries_of_object(&self, object: &Object) -> BTreeSet<ObjectRef> {
        let Role::Secondary(mapper) = &self.spec.role else {
            return BTreeSet::new();
        };
        if mapper.export().is_some() {
            return self.whose(object);
        }
        let Some(by) = mapper.index() else {
            return mapper.primaries(object, self.asked());
        };
        let Some(primaries) = &self.primaries else {
            return BTreeSet::new();
        };
        let keys = self.asked().texts(&by.key, "object", object, (Callback::Mapper, "mapper"));
        let state = primaries.state.read();
        let Some(lookup) = state.indexes.get(&by.name) else {
            return BTreeSet::new();
        };
        let found = keys.iter().flat_map(|key| lookup.get(key));
        found.filter(|primary| mapper.reaches(object.key(), primary)).cloned().collect()
    }

    /// Returns the secondaries of a primary, ordered by namespace and name (`IM-6`). A primary source returns the
    /// primary itself.
    pub fn related(&self, primary: &ObjectRef) -> Vec<Object> {
        let Role::Secondary(mapper) = &self.spec.role else {
            return self.get(primary).into_iter().collect();
        };
        match self.led(primary) {
            None => {
                let candidates = |state: &State| Candidates::of(&state.related, state.related.get(primary));
                self.select(Some(primary), candidates, |object| self.is_of(object, primary, mapper))
            }
            Some(Ok(Led::Named(names))) => names.iter().filter_map(|key| self.get(key)).collect(),
            Some(Ok(Led::Keyed(keys))) => {
                let candidates = |state: &State| match state.indexes.get(MAPPED) {
                    Some(lookup) => {
                        let found = keys.iter().flat_map(|key| lookup.get(key));
                        Candidates::of(lookup, found.filter(|object| mapper.reaches(object, primary)))
                    }
                    None => Candidates::default(),
                };
                self.select(Some(primary), candidates, |object| self.is_led(object, primary, &keys))
            }
            Some(Err(_)) => Vec::new(),
        }
    }

    /// Returns true if an object of this source belongs to a primary.
    pub fn relates(&self, object: &Object, primary: &ObjectRef) -> bool {
        match (&self.spec.role, self.led(primary)) {
            (Role::Primary, _) => object.key() == primary,
            (Role::Secondary(mapper), None) => self.is_of(object, primary, mapper),
            (Role::Secondary(_), Some(Ok(Led::Named(names)))) => names.contains(object.key()),
            (Role::Secondary(_), Some(Ok(Led::Keyed(keys)))) => self.is_led(object, primary, &keys),
            (Role::Secondary(_), Some(Err(_))) => false,
        }
    }

    /// Says by what an object would be found as one of a primary; `None` if it is.
    pub fn unfound(&self, object: &Object, primary: &ObjectRef) -> Option<String> {
        match &self.spec.role {
            Role::Secondary(mapper) if !self.relates(object, primary) => Some(mapper.by()),
            Role::Primary | Role::Secondary(_) => None,
        }
    }

    /// Returns true if a secondary belongs to a primary as it says itself, or as the component says of it.
    fn is_of(&self, object: &Object, primary: &ObjectRef, mapper: &Mapper) -> bool {
        if mapper.export().is_some() {
            return self.whose(object).contains(primary);
        }
        mapper.maps(object, primary, self.asked())
    }

    /// Returns why the secondaries of a primary can't be known: it is asked for them, and has no answer.
    pub(super) fn does_not_lead(&self, primary: &ObjectRef) -> Option<String> {
        self.led(primary)?.err()
    }

    /// Returns a primary that is asked for its secondaries; `None` if it is gone.
    ///
    /// # Errors
    /// Those of [`Source::look`].
    pub(super) fn leader(&self, primary: &ObjectRef) -> Result<Option<Object>, Doubt> {
        self.primaries.as_ref().map_or(Ok(None), |primaries| primaries.look(primary))
    }

    /// Returns what a primary itself says of its secondaries; `None` if it is not asked.
    fn led(&self, primary: &ObjectRef) -> Option<Result<Led, String>> {
        let Role::Secondary(mapper) = &self.spec.role else {
            return None;
        };
        if mapper.secondaries().is_none() && mapper.leading_export().is_none() && mapper.index().is_none() {
            return None;
        }
        let found = match self.leader(primary) {
            Ok(found) => found,
            Err(doubt) => return Some(Err(doubt.to_string())),
        };
        let object = || found.as_ref();
        if let Some((keys, scope)) = mapper.secondaries() {
            let texts = object().map(|object| texts(keys, "primary", object)).transpose();
            let name = |text: &str| named(text, scope, primary.namespace.as_ref());
            let names = texts.map(|texts| {
                let names = texts.iter().flatten().filter_map(|text| name(text));
                Led::Named(mapper.led(primary, names, self.asked()))
            });
            return Some(names.map_err(|problem| {
                self.asked().tell(Callback::Mapper, "secondaries", primary, &problem);
                format!("its `secondaries` has no answer: {problem}")
            }));
        }
        if mapper.leading_export().is_some() {
            let said = object().map(|object| self.state.read().led.of(object).cloned());
            // A primary that is gone leads nowhere.
            let said = said.map_or(Some(BTreeSet::new()), |said| said);
            return Some(said.map(Led::Named).ok_or_else(|| NOT_ASKED.to_owned()));
        }
        let by = mapper.index()?;
        let primaries = self.primaries.as_ref()?;
        let keys = primaries.spec.indexes.get(&by.name)?;
        let texts = object().map(|object| primaries.asked().texts(keys, "object", object, (Callback::Index, &by.name)));
        Some(Ok(Led::Keyed(texts.unwrap_or_default())))
    }

    /// Returns true if a secondary is under one of these keys, and within reach of the primary that has them.
    fn is_led(&self, object: &Object, primary: &ObjectRef, keys: &BTreeSet<Box<str>>) -> bool {
        let Role::Secondary(mapper) = &self.spec.role else {
            return false;
        };
        let own = |key: &Keys| self.asked().texts(key, "object", object, (Callback::Mapper, "mapper"));
        mapper.reaches(object.key(), primary) && mapper.index().is_some_and(|by| !own(&by.key).is_disjoint(keys))
    }

    /// Returns who takes the failures of what this source asks.
    pub(super) fn asked(&self) -> Asked<'_> {
        Asked { source: &self.spec.name, faults: &self.spec.faults }
    }
}
