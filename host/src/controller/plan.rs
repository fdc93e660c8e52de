//! Decides which sources a controller has, and what each of them watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::cluster::{Error, Reason};
use capstan_core::manifest::{self, Dependent, External, Namespaces};
use capstan_core::object::fields::Fields;
use capstan_core::object::{Gvk, Scope as ObjectScope};
use capstan_core::permission::Home;
use capstan_core::source::callback::Faults;
use capstan_core::source::filter::{Filter, PrimaryFilter};
use capstan_core::source::mapper::Mapper;
use capstan_core::source::{Bounded, Role, Source, Spec};
use capstan_core::startup::Needed;

use super::declared::{KindAt, Kinds};
use crate::client::Kind;
use crate::informer::{PageSize, Scope, Selectors};

/// All sources of a controller.
pub(super) struct Plan {
    /// The primaries.
    pub(super) primaries: Planned,
    /// The secondaries, by name.
    pub(super) secondaries: BTreeMap<Arc<str>, Planned>,
    /// Dependents that another's source holds, with the name of that.
    pub(super) shared: Holders,
    /// What is polled outside of the cluster, by name.
    pub(super) externals: BTreeMap<Arc<str>, External>,
}

/// The dependents that others hold, with the names of those.
pub(super) type Holders = BTreeMap<Arc<str>, Arc<str>>;

/// A source that is to be, and what it watches.
pub(super) struct Planned {
    /// What it is for.
    pub(super) spec: Spec,
    /// One scope per namespace, or one for all (`IN-2`).
    pub(super) scopes: Vec<(Scope, Kind)>,
    /// Whether the controller needs it.
    pub(super) needed: Needed,
    /// Its turn when the controller starts (`ES-2`).
    pub(super) start_priority: Option<u32>,
    /// Whether it is watched only while a dependent is active.
    pub(super) on_demand: bool,
    /// Why there are no scopes; none if the kind is known.
    lacking: Option<Missing>,
    /// Scopes that may not be read, by namespace or for all of them (none), with the reason.
    denied: Vec<(Option<Arc<str>>, String)>,
}

/// Why a kind is not known.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    /// In words.
    pub(super) why: String,
    /// Whether the API server says that it does not serve it, and has not only not answered.
    pub(super) unserved: bool,
}

impl From<Error> for Missing {
    fn from(error: Error) -> Self {
        Self { unserved: error.reason == Reason::UnknownKind, why: error.message }
    }
}

/// What is to be watched.
struct Watch<'a> {
    at: KindAt,
    namespaces: &'a Namespaces,
    selectors: Selectors,
    /// The source that has informers of its own.
    alone: Option<Arc<str>>,
    page: PageSize,
    needed: Needed,
}

/// What plans are made from.
struct Planner<'a> {
    spec: &'a manifest::Controller,
    kinds: &'a Kinds,
    /// Why other kinds are not known.
    missing: &'a BTreeMap<KindAt, Missing>,
    home: &'a Home,
    faults: &'a Arc<Faults>,
}

impl Plan {
    /// Plans the sources of a controller, given the kinds that are served and why others are not; `finalizer` is the one that it
    /// uses, if something needs cleanup.
    pub(super) fn new(
        spec: &manifest::Controller,
        finalizer: Option<Arc<str>>,
        (kinds, missing): (&Kinds, &BTreeMap<KindAt, Missing>),
        home: &Home,
        faults: &Arc<Faults>,
    ) -> Self {
        let planner = Planner { spec, kinds, missing, home, faults };
        let primaries = planner.primaries(finalizer);
        let mut secondaries = planner.declared();
        let (own, shared) = planner.dependents();
        secondaries.extend(own);
        Self { primaries, secondaries, shared, externals: spec.externals.clone() }
    }

    /// Returns all that is watched, each with the source that watches it.
    pub(super) fn scopes(&self) -> impl Iterator<Item = (&Scope, &Kind, &Planned)> {
        let planned = std::iter::once(&self.primaries).chain(self.secondaries.values());
        planned.flat_map(|planned| planned.scopes.iter().map(move |(scope, kind)| (scope, kind, planned)))
    }

    /// Returns true if a kind is watched in a namespace, or anywhere (`None`).
    pub(super) fn watches(&self, kind: &KindAt, namespace: Option<&str>) -> bool {
        let within = |place: &Option<Arc<str>>| namespace.is_none() || place.is_none() || place.as_deref() == namespace;
        let same = |scope: &Scope| scope.gvk == kind.gvk && scope.cluster == kind.cluster;
        self.scopes().any(|(scope, ..)| same(scope) && within(&scope.namespace))
    }

    /// Returns the namespace that is left out of the primaries itself, where those are namespaces.
    pub(super) fn leaves_out(&self) -> Option<&Arc<str>> {
        let (scope, _) = self.primaries.scopes.first().filter(|(scope, _)| scope.gvk.is_namespace())?;
        scope.except.as_ref()
    }

    /// Leaves out what may not be read, which `why` says of a kind of the daemon's cluster in a namespace or everywhere (none).
    pub(super) fn deny(&mut self, why: impl Fn(&Kind, Option<&str>) -> Option<String>) {
        for planned in self.secondaries.values_mut().chain([&mut self.primaries]) {
            let Planned { scopes, denied, .. } = planned;
            scopes.retain(|(scope, kind)| {
                let own = scope.cluster.is_none();
                let why = own.then(|| why(kind, scope.namespace.as_deref())).flatten();
                let permitted = why.is_none();
                denied.extend(why.map(|why| (scope.namespace.clone(), why)));
                permitted
            });
        }
    }

    /// Tells sources what is not known: kinds that are not served, and what may not be read.
    pub(super) fn say_what_lacks(&self, primaries: &Source, secondaries: &BTreeMap<Arc<str>, Arc<Source>>) {
        let secondaries =
            self.secondaries.iter().filter_map(|(name, planned)| Some((&**secondaries.get(name)?, planned)));
        for (source, Planned { lacking, denied, .. }) in secondaries.chain([(primaries, &self.primaries)]) {
            let all = lacking.iter().map(|missing| (None, missing.why.as_str().into()));
            let denied = denied.iter().map(|(namespace, why)| (namespace.clone(), why.as_str().into()));
            source.lacking(all.chain(denied).collect());
            source.is_planned(lacking.as_ref().is_some_and(|missing| missing.unserved));
        }
    }
}

/// Plans a source that a run of a controller has registered, given the kinds that it is about.
pub(super) fn registered(
    spec: &manifest::Controller,
    (name, declared): (&Arc<str>, &manifest::Source),
    kinds: &Kinds,
    home: &Home,
    faults: &Arc<Faults>,
) -> Planned {
    Planner { spec, kinds, missing: &BTreeMap::new(), home, faults }.source(name, declared)
}

impl Planned {
    /// Returns the namespaces that it looks at; none: all of them.
    pub(super) fn places(&self) -> impl Iterator<Item = Option<&str>> {
        self.scopes.iter().map(|(scope, _)| scope.namespace.as_deref())
    }

    /// Returns what selects the objects that it looks at.
    pub(super) fn selectors(&self) -> Option<&Selectors> {
        let (scope, _) = self.scopes.first()?;
        Some(&scope.selectors)
    }
}

impl Planner<'_> {
    fn primaries(&self, finalizer: Option<Arc<str>>) -> Planned {
        let Self { spec, .. } = self;
        let built_in = PrimaryFilter { generation_aware: spec.generation_aware, finalizer };
        let source = Spec {
            name: "primaries".into(),
            gvk: spec.primary.clone(),
            cluster: spec.cluster.clone(),
            role: Role::Primary,
            filter: Filter::primary(built_in, spec.filters.clone()),
            indexes: spec.indexes.clone(),
            fields: spec.keep.fields(),
            bounded: spec.bounded.map(|bound| Bounded { stays: spec.stays(), bound }),
            packed: spec.stored.is_packed(),
            faults: Arc::clone(self.faults),
        };
        let watch = Watch {
            at: KindAt::of_primaries(spec),
            namespaces: &spec.namespaces,
            selectors: Selectors {
                labels: spec.label_selector.clone(),
                fields: spec.field_selector.clone(),
                shard: spec.shard_selector.clone(),
            },
            alone: None,
            page: PageSize(spec.page_size),
            needed: Needed::Always,
        };
        self.plan(&watch, source)
    }

    fn declared(&self) -> BTreeMap<Arc<str>, Planned> {
        let sources = self.spec.sources.iter();
        sources.map(|(name, declared)| (Arc::clone(name), self.source(name, declared))).collect()
    }

    fn source(&self, name: &Arc<str>, declared: &manifest::Source) -> Planned {
        let namespaces = declared.namespaces.as_ref().unwrap_or(&self.spec.namespaces);
        let selectors = Selectors {
            labels: declared.label_selector.clone(),
            fields: declared.field_selector.clone(),
            shard: declared.shard_selector.clone(),
        };
        let page = PageSize(declared.page_size);
        let alone = (!declared.shared).then(|| format!("{}/{name}", self.spec.name).into());
        let cluster = self.spec.cluster_of(declared);
        let at = KindAt::of(self.spec, cluster, &declared.gvk);
        let watch = Watch { at: at.clone(), namespaces, selectors, alone, page, needed: Needed::Always };
        let mapper = self.mapper(declared.mapper.clone()).across(declared.across_namespaces);
        let mapper = match &declared.secondaries {
            Some(names) => mapper.led_by(names.clone(), self.scope(&at)),
            None => mapper,
        };
        let source = Spec {
            cluster: cluster.cloned(),
            filter: Filter::secondary(declared.filters.clone()),
            indexes: declared.indexes.clone(),
            fields: declared.fields(),
            bounded: declared.bounded.map(|bound| Bounded { stays: declared.stays(), bound }),
            packed: declared.stored.is_packed(),
            ..self.secondary(name, &declared.gvk, mapper)
        };
        Planned { start_priority: declared.start_priority, ..self.plan(&watch, source) }
    }

    /// Returns one source for the dependents of each kind and mapping that name none (`KD-10`), and which dependents
    /// others hold. They share it so that an own write to one of them is known as such to all.
    fn dependents(&self) -> (BTreeMap<Arc<str>, Planned>, Holders) {
        let (mut own, mut shared) = (BTreeMap::<_, Planned>::new(), BTreeMap::new());
        let mut known = Vec::<(&Gvk, manifest::Mapper, &Arc<str>)>::new();
        for (name, dependent) in self.spec.dependents() {
            let (gvk, mapper) = (&dependent.gvk, mapping(dependent));
            let needed = if dependent.conditions.activation.is_some() { Needed::IfActive } else { Needed::Always };
            let same = known.iter().find(|(other, by, _)| *other == gvk && *by == mapper);
            if let Some(holder) = dependent.source.as_ref().or(same.map(|(_, _, holder)| *holder)) {
                if let Some(planned) = own.get_mut(holder) {
                    planned.on_demand &= dependent.watched_on_demand();
                    if needed == Needed::Always {
                        planned.needed = needed;
                    }
                }
                shared.insert(Arc::clone(name), Arc::clone(holder));
                continue;
            }
            let (namespaces, selectors, page) = (&self.spec.namespaces, Selectors::default(), PageSize::default());
            let at = KindAt::of(self.spec, self.spec.cluster.as_ref(), gvk);
            let watch = Watch { at, namespaces, selectors, alone: None, page, needed };
            let source = Spec {
                filter: Filter::secondary(dependent.filters.clone()),
                ..self.secondary(name, gvk, self.mapper(mapper.clone()))
            };
            let planned = Planned { on_demand: dependent.watched_on_demand(), ..self.plan(&watch, source) };
            own.insert(Arc::clone(name), planned);
            known.push((gvk, mapper, name));
        }
        (own, shared)
    }

    fn scope(&self, at: &KindAt) -> ObjectScope {
        self.kinds.get(at).map_or(ObjectScope::Namespaced, |kind| kind.scope)
    }

    fn mapper(&self, declared: manifest::Mapper) -> Mapper {
        let primary = &self.spec.primary;
        Mapper::new(primary.clone(), self.scope(&KindAt::of_primaries(self.spec)), declared)
    }

    fn secondary(&self, name: &Arc<str>, gvk: &Gvk, mapper: Mapper) -> Spec {
        Spec {
            name: Arc::clone(name),
            gvk: gvk.clone(),
            cluster: self.spec.cluster.clone(),
            role: Role::Secondary(mapper),
            filter: Filter::default(),
            indexes: BTreeMap::new(),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::clone(self.faults),
        }
    }

    fn plan(&self, watch: &Watch<'_>, spec: Spec) -> Planned {
        let scopes = self.kinds.get(&watch.at).map(|kind| watch.scopes(kind, self.home));
        Planned {
            spec,
            scopes: scopes.unwrap_or_default(),
            needed: watch.needed,
            start_priority: None,
            on_demand: false,
            lacking: self.missing.get(&watch.at).cloned(),
            denied: Vec::new(),
        }
    }
}

impl Watch<'_> {
    fn scopes(&self, kind: &Kind, home: &Home) -> Vec<(Scope, Kind)> {
        let KindAt { cluster, gvk } = &self.at;
        // Nothing of the daemon is in another cluster.
        let closed = home.unwatched(gvk).filter(|_| cluster.is_none());
        let namespaces: Vec<_> = match self.namespaces {
            _ if kind.scope == ObjectScope::Cluster => vec![None],
            Namespaces::All => vec![None],
            Namespaces::Own => vec![Some(&home.own)],
            Namespaces::Listed(names) => names.iter().map(Some).collect(),
            Namespaces::Selected(selected) => selected.found.iter().flat_map(|names| names.iter()).map(Some).collect(),
        };
        let scope = |namespace: Option<&Arc<str>>| {
            let has_it = kind.scope == ObjectScope::Namespaced || gvk.is_namespace();
            let except = closed.filter(|_| namespace.is_none() && has_it).cloned();
            let scope = Scope {
                gvk: gvk.clone(),
                namespace: namespace.cloned(),
                cluster: cluster.clone(),
                except,
                selectors: self.selectors.clone(),
                alone: self.alone.clone(),
                page: self.page,
            };
            (scope, kind.clone())
        };
        let open = namespaces.into_iter().filter(|namespace| namespace.is_none() || *namespace != closed);
        open.map(scope).collect()
    }
}

/// How a dependent is mapped to its primary: by what is written into it (`KD-2`, `KD-3`).
fn mapping(dependent: &Dependent) -> manifest::Mapper {
    if dependent.garbage_collected {
        manifest::Mapper::OwnerReference
    } else {
        manifest::Mapper::Annotations(dependent.mapping.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the kinds that are served, and why one is not.
    fn kinds() -> (Kinds, BTreeMap<KindAt, Missing>) {
        let served = [
            ("sample.dev/v1", "Page", "pages", ObjectScope::Namespaced),
            ("v1", "ConfigMap", "configmaps", ObjectScope::Namespaced),
            ("v1", "Secret", "secrets", ObjectScope::Namespaced),
            ("v1", "Namespace", "namespaces", ObjectScope::Cluster),
        ];
        let served = served.map(|(version, kind, plural, scope)| {
            let gvk = Gvk::parse(version, kind).unwrap();
            (KindAt { cluster: None, gvk: gvk.clone() }, Kind { gvk, plural: plural.into(), scope })
        });
        let theme = KindAt { cluster: None, gvk: Gvk::parse("sample.dev/v1", "Theme").unwrap() };
        (served.into(), [(theme, Missing { why: "not served".to_owned(), unserved: true })].into())
    }

    fn plan(fields: &str, home: &Home) -> Plan {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages: {{ plugin: p, primary: {{ apiVersion: sample.dev/v1, kind: Page }}, {fields} }}\n"
        );
        let operator = manifest::parse(&text, Path::new("a.yaml")).unwrap().remove(0);
        let (kinds, missing) = kinds();
        Plan::new(&operator.controllers["pages"], None, (&kinds, &missing), home, &Arc::default())
    }

    /// Writes each source with what it watches.
    fn told(plan: &Plan) -> Vec<String> {
        let one = |planned: &Planned| {
            let Planned { spec, scopes, needed, start_priority: _, on_demand, lacking, denied } = planned;
            let scopes = scopes.iter().map(|(scope, _)| format!("{scope} "));
            let needed = if *needed == Needed::IfActive { "if active " } else { "" };
            let needed = if *on_demand { "on demand " } else { needed };
            let lacking = lacking
                .iter()
                .map(|missing| &missing.why)
                .chain(denied.iter().map(|(_, why)| why))
                .map(|why| format!("({why})"));
            format!("{}: {}{needed}{}", spec.name, scopes.collect::<String>(), lacking.collect::<String>())
        };
        let sources = [&plan.primaries].into_iter().chain(plan.secondaries.values()).map(one);
        let shared = plan.shared.iter().map(|(name, holder)| format!("{name} -> {holder}"));
        sources.map(|line| line.trim_end().to_owned()).chain(shared).collect()
    }

    const CM: &str = "apiVersion: v1, kind: ConfigMap";

    fn informer(kind: &str, more: &str) -> String {
        format!("sources: {{ s: {{ informer: {{ {kind}, mapper: ownerReference{more} }} }} }}")
    }

    #[test]
    fn a_kind_is_missing_only_if_the_api_server_says_so() {
        // WF-11: one that is not known for another reason is not taken for one that nothing can be made of.
        let unserved = |reason| Missing::from(Error::new(reason, 503, "no")).unserved;
        let found = [Reason::UnknownKind, Reason::Unreachable, Reason::Busy].map(unserved);
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn each_source_watches_the_namespaces_that_its_manifest_says_but_for_the_daemons_own() {
        // IN-2, NS-1
        let open = &Home { own: "home".into(), closed: None };
        let closed = &Home { closed: Some("home".into()), ..open.clone() };
        let (all, in_a) = ("primaries: sample.dev/v1 Page", "primaries: sample.dev/v1 Page in a");
        let (namespace, theme) = ("apiVersion: v1, kind: Namespace", "apiVersion: sample.dev/v1, kind: Theme");
        for (namespaces, more, home, expected) in [
            ("all", String::new(), open, vec![all]),
            ("all", String::new(), closed, vec![all]),
            // NS-5: until it is known which they are, none.
            ("{ selector: a=b }", informer(CM, ""), open, vec!["primaries:", "s:"]),
            ("[a]", "labelSelector: x=y".to_owned(), open, vec!["primaries: sample.dev/v1 Page in a where x=y"]),
            (
                "own",
                informer(CM, ", labelSelector: x=y"),
                open,
                vec!["primaries: sample.dev/v1 Page in home", "s: v1 ConfigMap in home where x=y"],
            ),
            // The daemon's own namespace is closed for built-in kinds.
            (
                "[a, home]",
                informer(CM, ""),
                closed,
                vec!["primaries: sample.dev/v1 Page in a sample.dev/v1 Page in home", "s: v1 ConfigMap in a"],
            ),
            ("[a]", informer(CM, ", namespaces: all"), closed, vec![in_a, "s: v1 ConfigMap outside of home"]),
            ("[a]", informer(namespace, ""), closed, vec![in_a, "s: v1 Namespace without home"]),
            ("[a]", informer(namespace, ""), open, vec![in_a, "s: v1 Namespace"]),
            ("[a]", informer(theme, ""), open, vec![in_a, "s: (not served)"]),
            // PO-4
            ("[a]", informer(CM, ", shared: false"), open, vec![in_a, "s: v1 ConfigMap in a for pages/s alone"]),
        ] {
            let fields = format!("namespaces: {namespaces}, {more}");
            assert_eq!(told(&plan(&fields, home)), expected, "{fields} {home:?}");
        }
    }

    #[test]
    fn the_daemons_own_namespace_is_no_primary() {
        let text = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: a }\nspec:\n  plugins: { p: { component: { path: p.wasm } } }\n  controllers:\n    spaces: { plugin: p, primary: { apiVersion: v1, kind: Namespace }, labelSelector: x=y }\n";
        let operator = manifest::parse(text, Path::new("a.yaml")).unwrap().remove(0);
        let (kinds, missing) = kinds();
        let open = Home { own: "home".into(), closed: None };
        let closed = Home { closed: Some("home".into()), ..open.clone() };
        for (home, expected) in [(open, "v1 Namespace where x=y"), (closed, "v1 Namespace without home where x=y")] {
            let plan = Plan::new(&operator.controllers["spaces"], None, (&kinds, &missing), &home, &Arc::default());
            assert_eq!(told(&plan), [format!("primaries: {expected}")]);
            assert_eq!(plan.leaves_out(), home.closed.as_ref());
        }
    }

    #[test]
    fn dependents_of_a_kind_that_are_mapped_in_the_same_way_share_a_source() {
        // KD-10
        let home = Home { own: "home".into(), closed: None };
        let active = "activation: { export: wanted }";
        for (dependents, more, expected) in [
            (
                format!("m: {{ {CM}, {active} }}, n: {{ {CM} }}, o: {{ {CM}, garbageCollected: false, {active} }}"),
                String::new(),
                vec!["m: v1 ConfigMap in a", "o: v1 ConfigMap in a on demand", "n -> m"],
            ),
            // One that looks at its object is asked again when that changes.
            (
                format!(
                    "m: {{ {CM}, {active} }}, n: {{ {CM}, activation: gone }}, o: {{ {CM}, garbageCollected: false, {active} }}, p: {{ {CM}, garbageCollected: false, {active} }}"
                ),
                String::new(),
                vec!["m: v1 ConfigMap in a if active", "o: v1 ConfigMap in a on demand", "n -> m", "p -> o"],
            ),
            (
                format!("m: {{ {CM}, source: s }}, n: {{ {CM} }}"),
                informer(CM, ", namespaces: all"),
                vec!["n: v1 ConfigMap in a", "s: v1 ConfigMap", "m -> s"],
            ),
        ] {
            let fields = format!("namespaces: [a], workflow: {{ dependents: {{ {dependents} }} }}, {more}");
            assert_eq!(told(&plan(&fields, &home))[1..], expected, "{fields}");
        }
    }

    #[test]
    fn what_may_not_be_read_is_left_out_of_a_plan_with_the_reason() {
        let home = Home { own: "home".into(), closed: None };
        let mut plan = plan("namespaces: [a, b]", &home);
        plan.deny(|_, namespace| (namespace == Some("b")).then(|| "forbidden".to_owned()));
        assert_eq!(told(&plan), ["primaries: sample.dev/v1 Page in a (forbidden)"]);
    }
}
