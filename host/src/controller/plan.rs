//! Decides which sources a controller has, and what each of them watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::manifest::{self, Dependent, Namespaces};
use capstan_core::object::pointer::Pointer;
use capstan_core::object::{Gvk, Scope as ObjectScope};
use capstan_core::permission::Home;
use capstan_core::source::filter::{Filter, PrimaryFilter, UserFilter};
use capstan_core::source::mapper::Mapper;
use capstan_core::source::{Role, Source, Spec};
use capstan_core::startup::Needed;

use super::declared::{Declared, Kinds};
use crate::client::Kind;
use crate::informer::Scope;

/// All sources of a controller.
pub(super) struct Plan {
    /// The primaries.
    pub(super) primaries: Planned,
    /// The secondaries, by name.
    pub(super) secondaries: BTreeMap<Arc<str>, Planned>,
    /// Dependents that another's source holds, with the name of that.
    pub(super) shared: Holders,
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
    /// Why there are no scopes; none if the kind is known.
    lacking: Option<String>,
    /// Scopes that may not be read, by namespace or for all of them (none), with the reason.
    denied: Vec<(Option<Arc<str>>, String)>,
}

/// What is to be watched.
struct Watch<'a> {
    gvk: &'a Gvk,
    namespaces: &'a Namespaces,
    labels: Option<&'a Arc<str>>,
    needed: Needed,
}

/// What plans are made from.
struct Planner<'a> {
    spec: &'a manifest::Controller,
    kinds: &'a Kinds,
    /// Why other kinds are not known.
    missing: &'a BTreeMap<Gvk, String>,
    home: &'a Home,
}

impl Plan {
    /// Plans the sources of a controller, given the kinds that are served and why others are not; `finalizer` is the one that it
    /// uses if something needs cleanup.
    pub(super) fn new(
        declared: &Declared,
        (kinds, missing): (&Kinds, &BTreeMap<Gvk, String>),
        finalizer: &Arc<str>,
        home: &Home,
    ) -> Self {
        let planner = Planner { spec: &declared.spec, kinds, missing, home };
        let used = declared.needs_finalizer().then(|| Arc::clone(finalizer));
        let primaries = planner.primaries(used);
        let mut secondaries = planner.declared();
        let (own, shared) = planner.dependents();
        secondaries.extend(own);
        Self { primaries, secondaries, shared }
    }

    /// Returns all that is watched, and whether each is needed.
    pub(super) fn scopes(&self) -> impl Iterator<Item = (&Scope, &Kind, Needed)> {
        let planned = std::iter::once(&self.primaries).chain(self.secondaries.values());
        planned.flat_map(|Planned { scopes, needed, .. }| scopes.iter().map(|(scope, kind)| (scope, kind, *needed)))
    }

    /// Leaves out what may not be read, which `why` says of a kind in a namespace or everywhere (none).
    pub(super) fn deny(&mut self, why: impl Fn(&Kind, Option<&str>) -> Option<String>) {
        for planned in self.secondaries.values_mut().chain([&mut self.primaries]) {
            let Planned { scopes, denied, .. } = planned;
            scopes.retain(|(scope, kind)| {
                let why = why(kind, scope.namespace.as_deref());
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
            if let Some(why) = lacking {
                source.lacks(None, why);
            }
            for (namespace, why) in denied {
                source.lacks(namespace.as_deref(), why);
            }
        }
    }
}

impl Planned {
    /// Returns the label selector of what it looks at.
    pub(super) fn labels(&self) -> Option<&Arc<str>> {
        let (scope, _) = self.scopes.first()?;
        scope.labels.as_ref()
    }
}

impl Planner<'_> {
    fn primaries(&self, finalizer: Option<Arc<str>>) -> Planned {
        let Self { spec, .. } = self;
        let built_in = PrimaryFilter { generation_aware: spec.generation_aware, finalizer };
        let source = Spec {
            name: "primaries".into(),
            gvk: spec.primary.clone(),
            role: Role::Primary,
            // No user filter is given, and nothing else is refused.
            filter: Filter::primary(Some(built_in), UserFilter::default()).unwrap_or_default(),
            indexes: spec.indexes.clone(),
        };
        let labels = spec.label_selector.as_ref();
        self.plan(&Watch { gvk: &spec.primary, namespaces: &spec.namespaces, labels, needed: Needed::Always }, source)
    }

    fn declared(&self) -> BTreeMap<Arc<str>, Planned> {
        let one = |(name, declared): (&Arc<str>, &manifest::Source)| {
            let namespaces = declared.namespaces.as_ref().unwrap_or(&self.spec.namespaces);
            let labels = declared.label_selector.as_ref();
            let watch = Watch { gvk: &declared.gvk, namespaces, labels, needed: Needed::Always };
            let source = self.secondary(name, &declared.gvk, declared.mapper.clone(), &declared.indexes);
            (Arc::clone(name), self.plan(&watch, source))
        };
        self.spec.sources.iter().map(one).collect()
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
                if let (Needed::Always, Some(planned)) = (needed, own.get_mut(holder)) {
                    planned.needed = needed;
                }
                shared.insert(Arc::clone(name), Arc::clone(holder));
                continue;
            }
            let watch = Watch { gvk, namespaces: &self.spec.namespaces, labels: None, needed };
            let source = self.secondary(name, gvk, mapper.clone(), &BTreeMap::new());
            own.insert(Arc::clone(name), self.plan(&watch, source));
            known.push((gvk, mapper, name));
        }
        (own, shared)
    }

    fn secondary(
        &self,
        name: &Arc<str>,
        gvk: &Gvk,
        mapper: manifest::Mapper,
        indexes: &BTreeMap<Arc<str>, Pointer>,
    ) -> Spec {
        let primary = &self.spec.primary;
        let scope = self.kinds.get(primary).map_or(ObjectScope::Namespaced, |kind| kind.scope);
        Spec {
            name: Arc::clone(name),
            gvk: gvk.clone(),
            role: Role::Secondary(Mapper::new(primary.clone(), scope, mapper)),
            filter: Filter::default(),
            indexes: indexes.clone(),
        }
    }

    fn plan(&self, watch: &Watch<'_>, spec: Spec) -> Planned {
        let scopes = self.kinds.get(watch.gvk).map(|kind| watch.scopes(kind, self.home));
        Planned {
            spec,
            scopes: scopes.unwrap_or_default(),
            needed: watch.needed,
            lacking: self.missing.get(watch.gvk).cloned(),
            denied: Vec::new(),
        }
    }
}

impl Watch<'_> {
    fn scopes(&self, kind: &Kind, home: &Home) -> Vec<(Scope, Kind)> {
        let closed = home.unwatched(self.gvk);
        let scope = |namespace: Option<&Arc<str>>| {
            let (gvk, labels) = (self.gvk.clone(), self.labels.cloned());
            let except = closed.filter(|_| namespace.is_none() && kind.scope == ObjectScope::Namespaced);
            (Scope { gvk, namespace: namespace.cloned(), except: except.cloned(), labels }, kind.clone())
        };
        let listed = |names: &mut dyn Iterator<Item = &Arc<str>>| {
            let open = names.filter(|name| Some(*name) != closed);
            open.map(|name| scope(Some(name))).collect()
        };
        match self.namespaces {
            _ if kind.scope == ObjectScope::Cluster => vec![scope(None)],
            Namespaces::All => vec![scope(None)],
            Namespaces::Own => listed(&mut [&home.own].into_iter()),
            Namespaces::Listed(names) => listed(&mut names.iter()),
        }
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
