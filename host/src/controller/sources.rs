//! Decides which sources stay when a controller becomes another version, and joins the informers of its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstan_core::external::External;
use capstan_core::guest::Guest;
use capstan_core::manifest;
use capstan_core::reconciler::Controller;
use capstan_core::rollout::Step;
use capstan_core::source::on_demand::{OnDemand, Users};
use capstan_core::source::{Listener, Source, Spec, Touched};

use super::declared::Sites;
use super::demand::join;
use super::plan::{Plan, Planned};
use crate::client::Kind;
use crate::informer::pool::Subscription;
use crate::informer::{Scope, Selectors, Subscriber};

/// Sources of things outside of the cluster, by name.
type Externals = BTreeMap<Arc<str>, Arc<External>>;

/// The sources of a controller, and the finalizer for which changes are looked at.
pub(super) struct Sources {
    pub(super) primaries: Arc<Source>,
    /// By name; a source that several dependents share is there under each name.
    pub(super) secondaries: BTreeMap<Arc<str>, Arc<Source>>,
    /// Those of things outside of the cluster.
    pub(super) externals: Externals,
    pub(super) finalizer: Arc<str>,
    /// Those that are watched only while a dependent is active.
    pub(super) on_demand: Arc<OnDemand>,
    /// Sources with those that they continue.
    heirs: Vec<(Arc<Source>, Arc<Source>)>,
}

/// The informers that a controller has joined.
#[derive(Default)]
pub(super) struct Joined {
    places: Vec<Place>,
    /// Those who want to know of each change of a primary.
    pub(super) touched: Arc<Touched>,
}

/// A source's subscription to an informer, for as long as this is kept.
struct Place {
    source: Arc<Source>,
    scope: Scope,
    _membership: Subscription,
}

/// A source, and the informer that it has to join.
struct Wanted<'a> {
    source: &'a Arc<Source>,
    scope: &'a Scope,
    kind: &'a Kind,
}

impl Sources {
    /// Returns the sources of a plan. If there was a controller before, they continue from its sources of the same
    /// kinds; they are the same sources if the plan watches as before, perhaps in other namespaces. `joined` has the
    /// informers that the sources before have joined.
    pub(super) fn planned(
        plan: &Plan,
        finalizer: Arc<str>,
        before: Option<(&Controller, Step)>,
        joined: &Joined,
        guest: &dyn Guest,
    ) -> Self {
        let step = before.map(|(_, step)| step);
        let stays = matches!(step, Some(Step::InPlace | Step::Elsewhere));
        let new = |spec: &Spec, known: Option<&Arc<Source>>| match known {
            Some(known) => Source::heir(spec.clone(), known),
            None => Source::new(spec.clone()),
        };
        let new = |spec: &Spec, known: Option<&Arc<Source>>| new(spec, known).charging(|| guest.lasting());
        let controller = before.map(|(controller, _)| controller);
        let known = controller.map(|now| &now.primaries);
        let known = known.filter(|known| shows_the_same(known, &plan.primaries.spec));
        let primaries = match known {
            Some(known) if stays => Arc::clone(known),
            _ => Arc::new(new(&plan.primaries.spec, known).touching(&joined.touched)),
        };
        let secondaries = plan.secondaries.iter().map(|(name, planned)| {
            let shows_as = |source: &Arc<Source>| joined.selectors(source) == planned.selectors();
            let known = controller.and_then(|now| predecessor(&now.secondaries, (name, &planned.spec), shows_as));
            let source = match known {
                Some(known) if stays => Arc::clone(known),
                _ => Arc::new(new(&planned.spec, known).beside(&primaries)),
            };
            (Arc::clone(name), source, known)
        });
        let planned: Vec<_> = secondaries.collect();
        let continued = planned.iter().filter_map(|(_, source, known)| Some((source, (*known)?)));
        let mut secondaries: BTreeMap<_, _> =
            planned.iter().map(|(name, source, _)| (Arc::clone(name), Arc::clone(source))).collect();
        for (name, holder) in &plan.shared {
            if let Some(source) = secondaries.get(holder).cloned() {
                secondaries.insert(Arc::clone(name), source);
            }
        }
        let continued = known.into_iter().map(|known| (&primaries, known)).chain(continued);
        let heirs = continued.filter(|(source, known)| !Arc::ptr_eq(source, known));
        let heirs = heirs.map(|(source, known)| (Arc::clone(source), Arc::clone(known))).collect();
        let polled = controller.map(|now| (&*now.primaries, &now.externals));
        let externals = externals((&plan.primaries.spec, &plan.externals), polled);
        Self { primaries, secondaries, externals, finalizer, on_demand: Arc::default(), heirs }
    }

    /// Returns the sources of a controller, for the one that takes its place and watches the same.
    pub(super) fn of(controller: &Controller) -> Self {
        Self {
            primaries: Arc::clone(&controller.primaries),
            secondaries: controller.secondaries.clone(),
            externals: controller.externals.clone(),
            finalizer: Arc::clone(&controller.finalizer),
            on_demand: Arc::clone(&controller.on_demand),
            heirs: Vec::new(),
        }
    }

    /// Has those that are told no more hand over what they have put off: several may continue from one.
    fn hand_over(&self) {
        let mut told = BTreeSet::new();
        for (_, before) in self.heirs.iter().filter(|(_, before)| told.insert(Arc::as_ptr(before))) {
            let heirs = self.heirs.iter().filter(|(_, other)| Arc::ptr_eq(other, before));
            before.hand_over(&heirs.map(|(heir, _)| &**heir).collect::<Vec<_>>());
        }
    }

    /// Returns all, each once.
    pub(super) fn all(&self) -> Vec<&Arc<Source>> {
        let mut seen = BTreeSet::new();
        let all = self.secondaries.values().chain([&self.primaries]);
        all.filter(|source| seen.insert(Arc::as_ptr(source))).collect()
    }

    /// Has those sources of a plan that are watched on demand begin, of which these are demanded by now. Returns the places that they watch.
    pub(super) fn demand<'a>(
        &'a mut self,
        plan: &'a Plan,
        users: &Users,
        sites: &Sites,
        listener: &Listener,
    ) -> Vec<(Arc<Source>, Option<Arc<str>>)> {
        let mut all = OnDemand::default();
        for (name, planned) in plan.secondaries.iter().filter(|(_, planned)| planned.on_demand) {
            if let Some(source) = self.secondaries.get(name) {
                let join = join(source, planned, sites, listener);
                let held = self.secondaries.iter().filter(|(_, other)| Arc::ptr_eq(other, source));
                let dependents = held.map(|(dependent, _)| Arc::clone(dependent)).collect();
                all.insert(Arc::clone(source), dependents, users, join);
            }
        }
        let resumed = all.resume().into_iter();
        let watched = resumed.filter_map(|name| Some((self.secondaries.get(&name)?, plan.secondaries.get(&name)?)));
        let places = watched.flat_map(|(source, planned)| {
            let scopes = planned.scopes.iter();
            scopes.map(|(scope, _)| (Arc::clone(source), scope.namespace.clone()))
        });
        let places = places.collect();
        self.on_demand = Arc::new(all);
        places
    }

    /// Returns the informers to join: those of secondaries first, so that a new primary finds its secondaries.
    fn wanted<'a>(&'a self, plan: &'a Plan) -> Vec<Wanted<'a>> {
        let secondaries = plan.secondaries.iter().filter(|(_, planned)| !planned.on_demand);
        let secondaries = secondaries.filter_map(|(name, planned)| Some((self.secondaries.get(name)?, planned)));
        let all = secondaries.chain([(&self.primaries, &plan.primaries)]);
        let each = all.flat_map(|(source, Planned { scopes, .. })| {
            let wanted = move |(scope, kind)| Wanted { source, scope, kind };
            scopes.iter().map(|(scope, kind)| (scope, kind)).map(wanted)
        });
        each.collect()
    }
}

impl Joined {
    /// Returns what selects the objects that a source watches.
    fn selectors(&self, source: &Arc<Source>) -> Option<&Selectors> {
        let mut places = self.places.iter();
        let place = places.find(|place| Arc::ptr_eq(&place.source, source));
        place.map(|place| &place.scope.selectors)
    }

    /// Joins the informers of a plan, and leaves those that it does not need any more. Subscriptions that exist
    /// already stay; the listener gets only what is new in them.
    pub(super) fn become_as(
        &mut self,
        sources: &mut Sources,
        plan: &Plan,
        users: &Users,
        (sites, listener): (&Sites, &Listener),
    ) {
        let demanded = sources.demand(plan, users, sites, listener);
        let wanted = sources.wanted(plan);
        let Self { places: joined, .. } = self;
        let stays = |place: &Place| wanted.iter().any(|wanted| wanted.is(place));
        // Left only after all others have been joined: in between, nobody else would be told of what comes.
        let left: Vec<_> = joined.extract_if(.., |place| !stays(place)).collect();
        for wanted in &wanted {
            if joined.iter().any(|place| wanted.is(place)) {
                continue;
            }
            let Wanted { source, scope, kind } = *wanted;
            let subscriber = Subscriber { source: Arc::clone(source), listener: Arc::clone(listener) };
            joined.push(Place {
                source: Arc::clone(source),
                scope: scope.clone(),
                _membership: sites.at(scope.cluster.as_ref()).pool.join(scope, kind, subscriber),
            });
        }
        drop(left);
        sources.hand_over();
        plan.say_what_lacks(&sources.primaries, &sources.secondaries);
        for source in sources.all() {
            for place in source.places().into_keys() {
                let stays = |wanted: &Wanted<'_>| Arc::ptr_eq(wanted.source, source) && wanted.scope.namespace == place;
                let is_demanded = |(demanded, at): &(Arc<Source>, _)| Arc::ptr_eq(demanded, source) && *at == place;
                if !wanted.iter().any(stays) && !demanded.iter().any(is_demanded) {
                    source.detach(place.as_deref());
                }
            }
        }
    }
}

impl Wanted<'_> {
    fn is(&self, place: &Place) -> bool {
        Arc::ptr_eq(self.source, &place.source) && *self.scope == place.scope
    }
}

/// Returns sources of things outside of the cluster: what is known of one that stays as it is stays, too, if the primaries do.
fn externals(
    (primaries, wanted): (&Spec, &BTreeMap<Arc<str>, manifest::External>),
    before: Option<(&Source, &Externals)>,
) -> Externals {
    // Primaries of another kind, or in another cluster, may have the same names.
    let is_kin = |now: &Spec| now.gvk.is_kind_of(&primaries.gvk) && now.cluster == primaries.cluster;
    let kin = before.filter(|(now, _)| is_kin(now.spec())).map(|(_, known)| known);
    let one = |(name, spec): (&Arc<str>, &manifest::External)| {
        let spec = spec.unfiltered();
        let known = kin.and_then(|known| known.get(name)).filter(|known| known.spec == spec);
        let external = known.cloned().unwrap_or_else(|| Arc::new(External::new(name, spec)));
        (Arc::clone(name), external)
    };
    wanted.iter().map(one).collect()
}

/// Whether a source shows objects of the kind, in the cluster, that another one shows.
fn shows_the_same(source: &Source, spec: &Spec) -> bool {
    source.spec().gvk == spec.gvk && source.spec().cluster == spec.cluster
}

/// Returns the source from which a source of this kind continues: the one of the same name, or else any that shows
/// the same objects. An object that only another source shows is not gone because this one does not show it.
fn predecessor<'a>(
    before: &'a BTreeMap<Arc<str>, Arc<Source>>,
    (name, spec): (&str, &Spec),
    shows_as: impl Fn(&Arc<Source>) -> bool,
) -> Option<&'a Arc<Source>> {
    let same = |source: &&Arc<Source>| shows_the_same(source, spec);
    let named = before.get(name).filter(same);
    named.or_else(|| before.values().find(|source| same(source) && shows_as(source)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use capstan_core::cache::{Event, Writer};
    use capstan_core::cel::Expression;
    use capstan_core::manifest::Keys;
    use capstan_core::object::fields::Fields;
    use capstan_core::object::{Gvk, Managers, Object};
    use capstan_core::source::Role;
    use capstan_core::source::filter::Filter;
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn all_that_go_on_from_one_source_have_what_it_has_put_off() {
        // PO-3
        let key = Keys::Cel(Expression::parse("object.metadata.name", &["object"]).unwrap());
        let spec = Spec {
            name: "s".into(),
            gvk: Gvk::parse("v1", "ConfigMap").unwrap(),
            cluster: None,
            role: Role::Primary,
            filter: Filter::default(),
            indexes: [("i".into(), key)].into(),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::default(),
        };
        let [before, other] = [(); 2].map(|()| Arc::new(Source::new(spec.clone())));
        let mut writer = Writer::default();
        before.attach(None, writer.cache());
        let object = r#"{"metadata":{"namespace":"n","name":"a","resourceVersion":"1"}}"#;
        let object = Object::parse(object, &spec.gvk, &Managers::default()).unwrap();
        before.on(writer.apply(Event::Applied(object)).unwrap());
        let heirs: Vec<_> =
            [&before, &other, &before].map(|from| (Arc::new(Source::new(spec.clone())), Arc::clone(from))).into();
        let sources = Sources {
            primaries: Arc::clone(&before),
            secondaries: BTreeMap::new(),
            externals: BTreeMap::new(),
            finalizer: "f".into(),
            on_demand: Arc::default(),
            heirs,
        };
        sources.hand_over();
        let waits: Vec<_> = sources.heirs.iter().map(|(heir, _)| heir.settled().now_or_never().is_none()).collect();
        assert_eq!(waits, [true, false, true]);
        assert!(before.settled().now_or_never().is_some());
    }

    #[test]
    fn what_is_polled_is_of_the_primaries_of_one_cluster() {
        // PP-1, CU-6
        let text = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: a }\nspec:\n  plugins: { p: { component: { path: p.wasm } } }\n  controllers:\n    pages: { plugin: p, primary: { apiVersion: sample.dev/v1, kind: Page }, sources: { s: { poll: { every: 10s, id: /id } } } }\n";
        let operator = manifest::parse(text, Path::new("a.yaml")).unwrap().remove(0);
        let wanted = &operator.controllers["pages"].externals;
        let spec = |kind: &str, cluster: Option<&str>| Spec {
            name: "primaries".into(),
            gvk: Gvk::parse("sample.dev/v1", kind).unwrap(),
            cluster: cluster.map(Arc::from),
            role: Role::Primary,
            filter: Filter::default(),
            indexes: BTreeMap::new(),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::default(),
        };
        let before = Source::new(spec("Page", Some("edge")));
        let known = externals((before.spec(), wanted), None);
        for (kind, cluster, stays) in [
            ("Page", Some("edge"), true),
            ("Page", Some("far"), false),
            ("Page", None, false),
            ("Site", Some("edge"), false),
        ] {
            let now = externals((&spec(kind, cluster), wanted), Some((&before, &known)));
            assert_eq!(Arc::ptr_eq(&now["s"], &known["s"]), stays, "{kind} {cluster:?}");
        }
    }

    #[test]
    fn a_source_goes_on_from_its_namesake_or_from_one_that_shows_the_same() {
        // NS-2, PO-3
        let gvk = |kind: &str| Gvk::parse("v1", kind).unwrap();
        let source = |(name, kind): (&str, &str)| {
            let spec = Spec {
                name: name.into(),
                gvk: gvk(kind),
                cluster: None,
                role: Role::Primary,
                filter: Filter::default(),
                indexes: BTreeMap::new(),
                fields: Fields::whole(),
                bounded: None,
                packed: false,
                faults: Arc::default(),
            };
            (Arc::from(name), Arc::new(Source::new(spec)))
        };
        let before = [("all", "ConfigMap"), ("few", "ConfigMap"), ("keys", "Secret")];
        let before: BTreeMap<Arc<str>, _> = before.map(source).into();
        for (name, kind, shown, expected) in [
            ("few", "ConfigMap", "all", Some("few")),
            ("few", "Secret", "keys", Some("keys")),
            ("other", "ConfigMap", "few", Some("few")),
            ("other", "ConfigMap", "none", None),
            ("other", "Pod", "all", None),
        ] {
            let shows_as = |source: &Arc<Source>| *source.spec().name == *shown;
            let (_, wanted) = source((name, kind));
            let found = predecessor(&before, (name, wanted.spec()), shows_as);
            let found = found.map(|source| &*source.spec().name);
            assert_eq!(found, expected, "{name}, a {kind}, shows as {shown}");
        }
    }
}
