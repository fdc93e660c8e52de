//! The dependents of a controller: their fields, what they refer to, and the circles in which they depend on each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cel::{Expression, Right};
use crate::kinds;
use crate::object::Gvk;
use crate::object::Scope::{Cluster, Namespaced};
use crate::workflow::graph::Graph;
use crate::yaml::{Broken, Fault, Leaf, Located, Quoted, Scalar, Slot};

use super::super::names::{Export, Name};
use super::super::raw::{self, Maybe, Named};
use super::super::{
    Called, Conditions, Dependent, Filters, GenericMatching, Keep, Manage, MappingKeys, Matching, OnImmutable,
    OnRename, Workflow,
};
use super::{Check, MOST_DEPENDENTS, Sources, Usual, flag, get, located, names, source, template};

/// The most pointers that a comparison leaves out: each is looked for in each object.
const MOST_IGNORED: usize = 64;

/// What dependents of a controller have around them.
pub(super) struct Scope<'s> {
    /// The kind of the primary, if it is right.
    primary: Option<&'s Gvk>,
    /// The names of all sources, also of those that are wrong.
    source_names: BTreeSet<&'s str>,
    /// The sources that are right.
    sources: &'s Sources,
    /// What holds where a dependent says nothing.
    usual: Usual<'s>,
    /// The dependents so far, over all workflows, with their lines.
    taken: BTreeMap<Arc<str>, usize>,
    /// The dependents so far that have a source of their own.
    filtered: Vec<Filtered>,
    /// The dependents outside of the cluster so far, each with its source, and whether it is a bulk.
    outside: Vec<(Arc<str>, Arc<str>, bool)>,
}

/// A dependent with a source of its own: its name, what decides whether another one shares that, and its filters.
type Filtered = (Arc<str>, Gvk, Option<MappingKeys>, Filters);

impl<'s> Scope<'s> {
    pub(super) fn new(
        primary: Option<&'s Gvk>,
        source_names: BTreeSet<&'s str>,
        (sources, usual): (&'s Sources, Usual<'s>),
    ) -> Self {
        Self {
            primary,
            source_names,
            sources,
            usual,
            taken: BTreeMap::new(),
            filtered: Vec::new(),
            outside: Vec::new(),
        }
    }

    /// Returns the names of all sources, also of those that are wrong.
    pub(super) fn source_names(&self) -> &BTreeSet<&'s str> {
        &self.source_names
    }

    /// Returns the sources that are right.
    pub(super) fn sources(&self) -> &'s Sources {
        self.sources
    }

    /// Returns what holds where a dependent says nothing.
    pub(super) fn usual(&self) -> Usual<'s> {
        self.usual
    }

    /// Takes a name of a dependent, and returns the line of the one that has it already.
    pub(super) fn take(&mut self, name: &Arc<str>, line: usize) -> Option<usize> {
        self.taken.insert(Arc::clone(name), line)
    }

    /// Takes in which source knows of a dependent outside of the cluster, and returns another one that can't share it with this.
    pub(super) fn shares_source(&mut self, name: &Arc<str>, source: &Arc<str>, bulk: bool) -> Option<Arc<str>> {
        let shares = |(_, other, is_bulk): &&(_, Arc<str>, bool)| other == source && (bulk || *is_bulk);
        let other = self.outside.iter().find(shares).map(|(other, ..)| Arc::clone(other));
        self.outside.push((Arc::clone(name), Arc::clone(source), bulk));
        other
    }
}

impl Check<'_> {
    /// Says where a text breaks.
    pub(super) fn broken(&mut self, place: usize, text: &str, broken: &Broken) {
        self.faults.add(|| {
            let message = format!("found {}; {broken}", Quoted(text));
            Fault { inside: Some((broken.offset, text.to_owned())), ..Fault::new(place, message) }
        });
    }

    /// Returns a workflow of these dependents.
    pub(super) fn workflow(
        &mut self,
        field: &Slot<Named<raw::Dependent>>,
        around: usize,
        scope: &mut Scope<'_>,
    ) -> Workflow {
        let Some(Located { value: named, .. }) = self.need(field, around, "dependents") else {
            return Workflow::default();
        };
        let siblings = names(named);
        let (mut dependents, mut outside) = (BTreeMap::new(), BTreeMap::new());
        let mut declared = BTreeMap::new();
        for (name, place, raw) in self.each(named) {
            self.unique(name, place, raw, scope);
            let depends_on = self.depends_on(name, &raw.value.depends_on, &siblings);
            declared.insert(Arc::clone(name), depends_on.clone());
            if let Some(external) = located(&raw.value.external) {
                let found = self.outside((name, raw), external, depends_on, scope);
                outside.extend(found.map(|found| (Arc::clone(name), found)));
                continue;
            }
            let dependent = self.dependent(raw, depends_on, scope);
            if let Some(dependent) = dependent {
                self.same_filters(name, &dependent, place, scope);
                dependents.insert(Arc::clone(name), dependent);
            }
        }
        let graph = Graph::new(&declared).unwrap_or_else(|cycle| {
            let first =
                |entry: &&(Leaf<Name>, _)| entry.0.read().is_some_and(|name| Some(&name.value.0.0) == cycle.0.first());
            let place = named.0.iter().find(first).and_then(|(name, _)| name.read()).map_or(around, |name| name.place);
            self.fault(
                place,
                format!("found dependents that wait for each other: {cycle}; take one of these out of `dependsOn`"),
            );
            Graph::default()
        });
        template::mark_secrets(scope.primary, &graph, &mut dependents);
        Workflow { dependents, outside, graph: Arc::new(graph), ..Workflow::default() }
    }

    /// Finds names that are taken. A source may have the name of the one dependent that uses it.
    fn unique(&mut self, name: &Arc<str>, place: usize, raw: &Located<raw::Dependent>, scope: &mut Scope<'_>) {
        let uses_it = get(&raw.value.source).is_some_and(|Scalar(Name(source))| source == name);
        if scope.source_names.contains(&**name) && !uses_it {
            self.fault(place, format!("found a dependent and a source of the name `{name}`; expected different names"));
        }
        let line = self.mark(place).line;
        if let Some(first) = scope.take(name, line) {
            self.fault(
                place,
                format!("found a second dependent `{name}` in this controller; the first is in line {first}"),
            );
        }
    }

    /// Finds a dependent whose filters differ from those of another one that shares its source (`KD-10`).
    fn same_filters(&mut self, name: &Arc<str>, dependent: &Dependent, place: usize, scope: &mut Scope<'_>) {
        if dependent.source.is_some() {
            return;
        }
        let mapping = (!dependent.garbage_collected).then_some(&dependent.mapping);
        let shares = |(_, gvk, by, _): &&Filtered| *gvk == dependent.gvk && by.as_ref() == mapping;
        let Some((other, .., filters)) = scope.filtered.iter().find(shares) else {
            scope.filtered.push((Arc::clone(name), dependent.gvk.clone(), mapping.cloned(), dependent.filters.clone()));
            return;
        };
        if *filters != dependent.filters {
            self.fault(place, format!("found other `filters` than those of the dependent `{other}` of the same kind, whose source holds this one, too; expected the same at both, or a `source` for one of them"));
        }
    }

    fn depends_on(
        &mut self,
        name: &Arc<str>,
        field: &Maybe<raw::Names>,
        siblings: &BTreeSet<&str>,
    ) -> BTreeSet<Arc<str>> {
        let Some(Located { value, place }) = located(field) else {
            return BTreeSet::new();
        };
        if !self.few(*place, (value.len(), "names"), MOST_DEPENDENTS, "") {
            return BTreeSet::new();
        }
        let mut depends_on = self.set(value, *place, |Scalar(Name(name))| Arc::clone(name));
        let mut seen = BTreeSet::new();
        for Located { value: Scalar(Name(other)), place } in value.iter().filter_map(Slot::read) {
            // One that is there twice is told so, and once what else is wrong with it.
            if !seen.insert(other) {
                continue;
            }
            if other == name {
                self.fault(*place, format!("found `{name}`, the dependent itself; expected others of its workflow"));
                depends_on.remove(name);
            } else {
                self.known(*place, "dependent", other, siblings);
            }
        }
        depends_on
    }

    fn dependent(
        &mut self,
        raw: &Located<raw::Dependent>,
        depends_on: BTreeSet<Arc<str>>,
        scope: &Scope<'_>,
    ) -> Option<Dependent> {
        let Located { value: raw, place } = raw;
        let (api_version, kind) = (&raw.api_version, &raw.kind);
        let missing = (Slot::Missing, Slot::Missing);
        let gvk = self.gvk(api_version.as_ref().unwrap_or(&missing.0), kind.as_ref().unwrap_or(&missing.1), *place);
        let manage = self.manage(raw);
        let garbage_collected = flag(&raw.garbage_collected, true);
        self.traits(raw, *place, manage, garbage_collected);
        let matching = self.matching(&raw.matching);
        let source = self.source(raw, gvk.as_ref(), scope);
        let filters = self.filters(&raw.filters);
        self.filtered_source(raw);
        self.compared_whole(raw, manage, scope);
        let called = self.called(raw, gvk.as_ref(), scope.primary);
        let bulk = self.bulk(raw, manage);
        let template = self.desired(raw, gvk.as_ref(), manage, &depends_on);
        self.presence(raw);
        let mut condition = |field| self.condition(field, gvk.as_ref(), bulk);
        let conditions = Conditions {
            activation: condition(&raw.activation),
            reconcile_precondition: condition(&raw.reconcile_precondition),
            ready_postcondition: condition(&raw.ready_postcondition),
            delete_postcondition: condition(&raw.delete_postcondition),
        };
        let gvk = gvk?;
        let applied = get(&raw.server_side_apply).copied().unwrap_or_else(|| scope.usual.applied.of(&gvk));
        let detect_api_version_change = self.detects_versions(raw, applied, &matching);
        Some(Dependent {
            gvk,
            bulk,
            template,
            shows_secret: false,
            depends_on,
            manage,
            garbage_collected,
            create_only: flag(&raw.create_only, false),
            adopt: flag(&raw.adopt, false),
            server_side_apply: applied,
            field_validation: get(&raw.field_validation).copied().unwrap_or(scope.usual.validation),
            matching,
            source,
            filters,
            called,
            on_rename: get(&raw.on_rename).copied().unwrap_or_default(),
            on_immutable: get(&raw.on_immutable).copied().unwrap_or_default(),
            detect_api_version_change,
            mapping: get(&raw.mapping).map(source::mapping_keys).unwrap_or_default(),
            conditions,
            config: self.config(&raw.config),
        })
    }

    // DR-1
    pub(super) fn manage(&mut self, raw: &raw::Dependent) -> Manage {
        let listed = located(&raw.manage);
        match (located(&raw.read_only).filter(|read_only| read_only.value), listed) {
            (Some(read_only), Some(_)) => {
                self.fault(read_only.place, "found `readOnly: true` together with `manage`; expected one of them");
                Manage::default()
            }
            (Some(_), None) => Manage { create: false, update: false, delete: false },
            (None, None) => Manage::default(),
            (None, Some(Located { value, place })) => {
                let traits = self.set(value, *place, |one| *one);
                Manage {
                    create: traits.contains(&raw::Trait::Create),
                    update: traits.contains(&raw::Trait::Update),
                    delete: traits.contains(&raw::Trait::Delete),
                }
            }
        }
    }

    /// Finds traits that contradict each other.
    fn traits(&mut self, raw: &raw::Dependent, place: usize, manage: Manage, garbage_collected: bool) {
        if let Some(create_only) = located(&raw.create_only).filter(|field| field.value && !manage.create) {
            self.fault(create_only.place, "found `createOnly` without `create` in `manage`; expected both or neither");
        }
        if let Some(adopt) = located(&raw.adopt).filter(|field| field.value) {
            if !manage.create {
                self.fault(adopt.place, "found `adopt` without `create` in `manage`; expected both or neither");
            }
            if flag(&raw.create_only, false) {
                self.fault(adopt.place, "found `adopt` together with `createOnly`; expected one of them");
            }
        }
        let lets_go = |field: &&Located<_>| field.value == OnRename::Delete;
        if let Some(on_rename) = located(&raw.on_rename).filter(lets_go)
            && !(manage.create && manage.delete)
        {
            self.fault(
                on_rename.place,
                "found `onRename: delete` without `create` and `delete` in `manage`; expected both beside it",
            );
        }
        let recreates = |field: &&Located<_>| field.value == OnImmutable::Recreate;
        if let Some(on_immutable) = located(&raw.on_immutable).filter(recreates)
            && !(manage.create && manage.update && manage.delete)
        {
            self.fault(
                on_immutable.place,
                "found `onImmutable: recreate` without `create`, `update` and `delete` in `manage`; expected all three beside it",
            );
        }
        let mapping = located(&raw.mapping);
        if let Some(mapping) = mapping.filter(|_| garbage_collected) {
            self.fault(
                mapping.place,
                "found `mapping` where owner references name the primary; expected `garbageCollected: false` beside it",
            );
        }
        // KD-3: nothing names the primary on an object that somebody else creates.
        if !manage.create && !garbage_collected && raw.source.is_none() && mapping.is_none() {
            self.fault(place, "found a dependent that is neither created here nor garbage collected, so that nothing leads to its primary; expected a `source` or a `mapping`");
        }
    }

    /// Returns whether it is a bulk dependent (`BD-1`), and finds what suits single objects only.
    fn bulk(&mut self, raw: &raw::Dependent, manage: Manage) -> bool {
        let Some(bulk) = located(&raw.bulk).filter(|field| field.value) else {
            return false;
        };
        let single = [
            ("name", located(&raw.name).map(|field| field.place)),
            ("namespace", located(&raw.namespace).map(|field| field.place)),
            ("onRename", located(&raw.on_rename).map(|field| field.place)),
        ];
        for (field, place) in single {
            if let Some(place) = place {
                self.fault(place, format!("found `{field}` together with `bulk: true`; expected one of them: the objects of a bulk are those that `desired-set` answers, and what it no longer answers is deleted"));
            }
        }
        if !manage.create && (manage.update || manage.delete) {
            self.fault(bulk.place, "found `bulk: true` without `create` in `manage`, so that no mark tells its objects from others; expected `create`, or `readOnly: true`");
        }
        true
    }

    // KD-4
    fn called(&mut self, raw: &raw::Dependent, gvk: Option<&Gvk>, primary: Option<&Gvk>) -> Option<Called> {
        let (name, namespace) = (located(&raw.name), located(&raw.namespace));
        self.place(raw, gvk, primary);
        let mut text = |field: &Located<raw::ObjectName>| {
            let raw::ObjectName::Cel(expression) = &field.value;
            self.cel(expression, field.place, (&["primary"], Right::Text))
        };
        let namespace = namespace.and_then(&mut text);
        let name = name.and_then(&mut text)?;
        Some(Called { name, namespace })
    }

    /// Finds names and namespaces under which no object can be, as far as the kinds are known.
    fn place(&mut self, raw: &raw::Dependent, gvk: Option<&Gvk>, primary: Option<&Gvk>) {
        let own = gvk.and_then(kinds::scope);
        let primarys = primary.and_then(kinds::scope);
        let Some(Located { place, .. }) = located(&raw.namespace) else {
            if let (Some(name), None, Some(gvk), Some(primary)) = (located(&raw.name), &raw.namespace, gvk, primary)
                && (own, primarys) == (Some(Namespaced), Some(Cluster))
            {
                self.fault(name.place, format!("found `name` without `namespace`: {primary} lives in no namespace, and {gvk} in one; expected both"));
            }
            return;
        };
        if raw.name.is_none() {
            self.fault(*place, "found `namespace` without `name`; expected both, or neither");
        }
        if let (Some(gvk), Some(Cluster)) = (gvk, own) {
            self.fault(*place, format!("found `namespace` for {gvk}, which lives in none"));
            return;
        }
        let crosses = get(&raw.mapping).is_some_and(|mapping| flag(&mapping.across_namespaces, false));
        let leads = raw.source.is_some() || crosses;
        if primarys == Some(Namespaced) && (flag(&raw.garbage_collected, true) || !leads) {
            self.fault(*place, "found `namespace` for a dependent that can only be where its primary is; expected `garbageCollected: false` and `mapping: { acrossNamespaces: true }`, or `name` alone");
        }
    }

    pub(super) fn matching(&mut self, field: &Maybe<raw::Match>) -> Matching {
        let Some(Located { value, place }) = located(field) else {
            return Matching::default();
        };
        match value {
            raw::Match::Usual => Matching::Usual,
            raw::Match::DryRun => Matching::DryRun,
            raw::Match::Generic(generic) => match self.need(generic, *place, "generic") {
                Some(generic) => Matching::Generic(self.generic(&generic.value)),
                None => Matching::default(),
            },
            raw::Match::Export(export) => match self.need(export, *place, "export") {
                Some(Located { value: Scalar(Export(export)), .. }) => Matching::Export(Arc::clone(export)),
                None => Matching::default(),
            },
        }
    }

    // GM-2
    fn generic(&mut self, raw: &raw::Generic) -> GenericMatching {
        let ignore = located(&raw.ignore);
        let ignore = ignore.filter(|at| self.few(at.place, (at.value.len(), "pointers"), MOST_IGNORED, ""));
        let ignore = ignore.map(|at| self.items(&at.value, at.place)).unwrap_or_default();
        if let Some(equality) = located(&raw.equality).filter(|field| field.value && !ignore.is_empty()) {
            self.fault(equality.place, "found `equality: true` together with `ignore`; expected one of them");
        }
        GenericMatching {
            ignore: ignore.iter().map(|pointer| Arc::clone(pointer.value.0.text())).collect(),
            strict_metadata: flag(&raw.strict_metadata, false),
            equality: flag(&raw.equality, false),
        }
    }

    // KD-10
    fn source(&mut self, raw: &raw::Dependent, gvk: Option<&Gvk>, scope: &Scope<'_>) -> Option<Arc<str>> {
        let Located { value: Scalar(Name(name)), place } = located(&raw.source)?;
        self.known(*place, "source", name, &scope.source_names);
        let Sources { watched, polled, .. } = scope.sources;
        if polled.contains_key(name) {
            self.fault(
                *place,
                format!(
                    "found `{name}`, which has things outside of the cluster; expected a source of Kubernetes objects"
                ),
            );
        }
        if let (Some(source), Some(gvk)) = (watched.get(name), gvk)
            && source.gvk != *gvk
        {
            self.fault(*place, format!("found `{name}`, which watches {}; expected a source of {gvk}", source.gvk));
        }
        if let Some(cluster) = watched.get(name).and_then(|source| source.cluster.as_ref()) {
            self.fault(*place, format!("found `{name}`, which watches the cluster `{cluster}`; expected a source of the controller's own cluster, in which its dependents are"));
        }
        Some(Arc::clone(name))
    }

    /// Finds a dependent that would be compared with an object of which its source keeps only some fields.
    fn compared_whole(&mut self, raw: &raw::Dependent, manage: Manage, scope: &Scope<'_>) {
        let Some(Located { value: Scalar(Name(name)), place }) = located(&raw.source) else {
            return;
        };
        let source = scope.sources.watched.get(name);
        if source.is_some_and(|source| source.bounded.is_some()) {
            self.fault(*place, format!("found `{name}`, which forgets objects (`bounded`); expected a source that keeps all, as conditions and comparisons look at any of them"));
        }
        let reduced = source.is_some_and(|source| source.keep != Keep::Whole);
        if reduced && (manage.create || manage.update) {
            self.fault(*place, format!("found `{name}`, which does not keep all fields (`keep`, `drop`), so that the dependent can't be compared with its object; expected a source that keeps all, or `readOnly: true`"));
        }
    }

    pub(super) fn cel(
        &mut self,
        field: &Slot<String>,
        around: usize,
        (variables, right): (&[&'static str], Right),
    ) -> Option<Expression> {
        let Located { value, place } = self.need(field, around, "cel")?;
        if self.has_too_many_parts() {
            return None;
        }
        let parsed = Expression::parse(value, variables);
        let works = parsed.and_then(|cel| cel.never(right).map_or(Ok(cel), Err));
        let works = works.map_err(|broken| self.broken(*place, value, &broken)).ok()?;
        self.keep_parts(*place, works.parts()).then_some(works)
    }
}
