//! What caches keep: pointers that can't be kept or left out, and settings that would look at what is not there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::keep::{Keep, Path, Stored, named, of_both, of_keys};
use super::super::raw::{self, Maybe};
use super::super::units::{Bytes, Objects, Time};
use super::super::{
    Bound, Condition, Conditions, Dependent, Events, Filters, Keys, Mapper, Node, Outside, Reconciler, Secondaries,
    Source, StatusConditions, Workflow,
};
use super::conditions::looked_at;
use super::{Check, flag, get, located};
use crate::cel::Template;
use crate::object::fields::Fields;
use crate::object::hold::HELD;
use crate::object::pointer::Pointer;
use crate::object::{MARK, PAUSED};
use crate::yaml::{Leaf, Located, OrWord, Quoted, Scalar, Slot};

/// The most pointers of a `keep` or `drop`, and names in one of them.
const POINTERS: usize = 64;
const NAMES: usize = 32;

/// The variable that holds a primary.
const PRIMARY: &str = "primary";

impl Check<'_> {
    /// Returns what is kept.
    pub(super) fn keep(&mut self, keep: &Maybe<raw::Kept>, drop: &Maybe<Vec<Leaf<Pointer>>>) -> Keep {
        if let (Some(_), Some(Located { place, .. })) = (located(keep), located(drop)) {
            self.fault(*place, "found `drop` beside `keep`; expected one of them");
        }
        match (located(keep), located(drop)) {
            (Some(Located { value: OrWord::Word(_), .. }), _) => Keep::Metadata,
            (Some(Located { value: OrWord::Value(pointers), place }), _) => {
                Keep::Only(self.pointers(pointers, *place, "at least one pointer, or `metadata`"))
            }
            (None, Some(Located { value: pointers, place })) => {
                let found = self.pointers(pointers, *place, "at least one pointer");
                self.always_kept(pointers);
                Keep::Without(found)
            }
            (None, None) => Keep::Whole,
        }
    }

    fn pointers(&mut self, pointers: &[Leaf<Pointer>], place: usize, expected: &str) -> Vec<Pointer> {
        if pointers.is_empty() {
            self.fault(place, format!("found an empty list; expected {expected}"));
        }
        if !self.few(place, (pointers.len(), "pointers"), POINTERS, "") {
            return Vec::new();
        }
        self.set(pointers, place, |Scalar(pointer)| pointer.text().clone());
        let mut found = Vec::new();
        for Located { value: Scalar(pointer), place } in pointers.iter().filter_map(Slot::read) {
            if pointer.path().is_empty() {
                self.fault(*place, "found the empty pointer, which leads to the whole object; expected one to a field, such as `/spec`");
            }
            if pointer.path().len() > NAMES {
                self.fault(
                    *place,
                    format!("found a pointer of {} names; expected at most {NAMES}", pointer.path().len()),
                );
            }
            found.push(pointer.clone());
        }
        found
    }

    /// Finds fields that can't be left out.
    fn always_kept(&mut self, pointers: &[Leaf<Pointer>]) {
        for Located { value: Scalar(pointer), place } in pointers.iter().filter_map(Slot::read) {
            let path: Vec<&str> = pointer.path().iter().map(|name| &**name).collect();
            let found = Quoted(pointer.text());
            match *path.as_slice() {
                ["metadata", "annotations", HELD | MARK | PAUSED, ..] => {
                    self.fault(
                        *place,
                        format!("found {found}, an annotation that the daemon itself reads; expected another one"),
                    );
                }
                ["metadata", "annotations", ..] => {}
                ["apiVersion" | "kind" | "metadata", ..] => {
                    self.fault(*place, format!("found {found}, which is always kept, as it says which object it is and whose; of the metadata only annotations can be left out"));
                }
                [..] => {}
            }
        }
    }

    /// Finds a bounded source of which nobody could tell where an object belongs once it is forgotten.
    pub(super) fn forgettable(&mut self, field: &Maybe<raw::CacheBound>, source: &Source) {
        let Some(Located { place, .. }) = located(field) else {
            return;
        };
        if matches!(source.mapper, Mapper::Export(_)) {
            self.fault(*place, "found `bounded` beside an export in `mapper`, which can't be asked about what is forgotten; expected a pointer there");
        }
        let named = source
            .mapper
            .keys()
            .map(|keys| ("mapper", keys))
            .into_iter()
            .chain(source.indexes.values().map(|keys| ("indexes", keys)));
        let mut by_cel = named.filter(|(_, keys)| matches!(keys, Keys::Cel(_)));
        if let Some((setting, _)) = by_cel.next() {
            self.fault(*place, format!("found `bounded` beside CEL in `{setting}`, which can't be asked about what is forgotten; expected a pointer there"));
        }
    }

    /// Finds what primaries that are forgotten could not be asked about.
    pub(super) fn primaries_forgettable(
        &mut self,
        raw: &raw::Controller,
        indexes: &BTreeMap<Arc<str>, Keys>,
        sources: &BTreeMap<Arc<str>, Source>,
    ) {
        let Some(Located { place, .. }) = located(&raw.bounded) else {
            return;
        };
        if flag(&raw.trigger_on_all_events, false) {
            self.fault(*place, "found `bounded` together with `triggerOnAllEvents`, which runs for primaries that are gone as they were last; expected one of them");
        }
        let secondaries = sources.values().filter_map(|source| source.secondaries.as_ref());
        let by_cel = |keys: &Keys| matches!(keys, Keys::Cel(_));
        let indexed = indexes.values().any(by_cel).then_some("CEL in `indexes`");
        let mut named = secondaries.filter_map(|secondaries| match secondaries {
            Secondaries::Named(keys) => by_cel(keys).then_some("CEL in `secondaries` of a source"),
            Secondaries::Export(_) => Some("an export in `secondaries` of a source"),
        });
        if let Some(what) = indexed.or_else(|| named.next()) {
            self.fault(*place, format!("found `bounded` beside {what}, which can't be asked about primaries that are forgotten; expected a pointer there"));
        }
    }

    /// Finds settings that look at fields which are not kept: they would find nothing there, and nobody would know why.
    pub(super) fn looked_at(
        &mut self,
        (keep, drop): (&Maybe<raw::Kept>, &Maybe<Vec<Leaf<Pointer>>>),
        fields: &Fields,
        looks_at: impl IntoIterator<Item = (&'static str, Path)>,
    ) {
        let kept = located(keep).map(|keep| (keep.place, "without", "expected it there"));
        let left_out = located(drop).map(|drop| (drop.place, "with", "expected it to stay"));
        let (Some((place, with, expected)), word) = (kept.or(left_out), if keep.is_some() { "keep" } else { "drop" })
        else {
            return;
        };
        let mut looks_at = looks_at.into_iter();
        let lacking = looks_at.find(|(_, path)| fields.lacks(path.iter().map(String::as_str)));
        if let Some((setting, path)) = lacking {
            let names: Vec<_> = path.iter().map(|name| name.replace('~', "~0").replace('/', "~1")).collect();
            let path = format!("/{}", names.join("/"));
            self.fault(
                place,
                format!("found `{word}` {with} {}, at which `{setting}` looks; {expected}", Quoted(&path)),
            );
        }
    }
}

/// Returns how that is in memory.
pub(super) fn stored(packed: &Maybe<bool>) -> Stored {
    if flag(packed, false) { Stored::Packed } else { Stored::Plain }
}

/// Returns how much is kept whole.
pub(super) fn bound(raw: &raw::CacheBound) -> Bound {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Bound {
        objects: get(&raw.objects).map_or(1000, |Scalar(Objects(n))| number((*n).into())),
        bytes: get(&raw.bytes).map_or(8 << 20, |Scalar(Bytes(n))| number(*n)),
        unused: get(&raw.unused).map(|Scalar(Time(time))| *time),
    }
}

/// Returns the fields of primaries at which the settings of a controller look.
pub(super) fn of_primaries<'w>(
    (filters, events, conditions): (&Filters, &Events, StatusConditions),
    indexes: &BTreeMap<Arc<str>, Keys>,
    sources: &BTreeMap<Arc<str>, Source>,
    (workflows, reconciler): (impl Iterator<Item = &'w Workflow>, &Reconciler),
) -> Vec<(&'static str, Path)> {
    let keys = sources.values().filter_map(|source| source.secondaries.as_ref()?.keys());
    let secondaries = keys.flat_map(|keys| named("secondaries", of_keys(keys, PRIMARY)));
    let dependents = workflows.flat_map(Workflow::nodes);
    let dependents = dependents.flat_map(|(_, node)| named("dependents", of_node(node)));
    let events = events.expressions().flat_map(|cel| named("events", cel.paths(PRIMARY)));
    let status = match reconciler {
        Reconciler::Component | Reconciler::Template(None) => Vec::new(),
        Reconciler::Template(Some(status)) => named("status", of_template(status)).collect(),
    };
    of_both(filters, indexes.values())
        .chain(secondaries)
        .chain(dependents)
        .chain(events)
        .chain(looked_at(conditions))
        .chain(status)
        .collect()
}

fn of_template(template: &Template) -> Vec<Path> {
    template.expressions("").into_iter().flat_map(|(_, cel)| cel.paths(PRIMARY)).collect()
}

fn of_node(node: Node<'_>) -> Vec<Path> {
    let (called, template) = match node {
        Node::Object(Dependent { called, template, .. }) => {
            let called = called.iter().flat_map(|called| called.namespace.iter().chain([&called.name]));
            (called.collect::<Vec<_>>(), template.as_ref())
        }
        Node::Thing(Outside { called, .. }) => (called.iter().collect(), None),
    };
    let Conditions { activation, reconcile_precondition, ready_postcondition, delete_postcondition } =
        node.conditions();
    let conditions = [activation, reconcile_precondition, ready_postcondition, delete_postcondition];
    let conditions = conditions.into_iter().flatten().filter_map(|condition| match condition {
        Condition::Cel(cel) => Some(cel),
        Condition::Gone | Condition::CrdPresent | Condition::Export(_) | Condition::Ready(_) => None,
    });
    let template = template.into_iter().flat_map(of_template);
    called.into_iter().chain(conditions).flat_map(|cel| cel.paths(PRIMARY)).chain(template).collect()
}
