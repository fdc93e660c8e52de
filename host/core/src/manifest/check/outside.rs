//! The dependents outside of the cluster: which source knows of them, what remembers their ids, and fields that suit Kubernetes objects only.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cel::{Expression, Right};
use crate::yaml::{Located, Scalar};

use super::super::names::Name;
use super::super::outside::{State, THING};
use super::super::polls::External;
use super::super::raw::{self, Maybe};
use super::super::{Condition, Conditions, Dependent, GenericMatching, Matching, Outside};
use super::{Check, Scope, flag, get, located};

/// What follows the name of a dependent in that of the source of its state.
const STATE: &str = "-state";

impl Check<'_> {
    /// Returns a dependent outside of the cluster.
    pub(super) fn outside(
        &mut self,
        (name, raw): (&Arc<str>, &Located<raw::Dependent>),
        external: &Located<raw::Outside>,
        depends_on: BTreeSet<Arc<str>>,
        scope: &mut Scope<'_>,
    ) -> Option<Outside> {
        let place = raw.place;
        let raw = &raw.value;
        self.only_of_objects(raw);
        let manage = self.manage(raw);
        let bulk = flag(&raw.bulk, false);
        let source = self.outside_source((name, external), bulk, scope);
        let key = located(&external.value.key).and_then(|Located { value: raw::ThingKey::Cel(cel), place }| {
            self.cel(cel, *place, (&[THING], Right::Text))
        });
        let called = self.outside_id(raw, key.is_some());
        let matching = self.outside_matching(&raw.matching);
        let state = self.state(name, place, &external.value.state, scope);
        let mut condition = |field| self.outside_condition(field, bulk);
        let conditions = Conditions {
            activation: condition(&raw.activation),
            reconcile_precondition: condition(&raw.reconcile_precondition),
            ready_postcondition: condition(&raw.ready_postcondition),
            delete_postcondition: condition(&raw.delete_postcondition),
        };
        let config = self.config(&raw.config);
        Some(Outside { source: source?, state, key, called, bulk, depends_on, manage, matching, conditions, config })
    }

    /// Finds fields of Kubernetes objects.
    fn only_of_objects(&mut self, raw: &raw::Dependent) {
        fn place<T>(field: &Maybe<T>) -> Option<usize> {
            located(field).map(|field| field.place)
        }
        for (field, place) in [
            ("apiVersion", place(&raw.api_version)),
            ("kind", place(&raw.kind)),
            ("desired", place(&raw.desired)),
            ("garbageCollected", place(&raw.garbage_collected)),
            ("createOnly", place(&raw.create_only)),
            ("adopt", place(&raw.adopt)),
            ("serverSideApply", place(&raw.server_side_apply)),
            ("fieldValidation", place(&raw.field_validation)),
            ("source", place(&raw.source)),
            ("filters", place(&raw.filters)),
            ("namespace", place(&raw.namespace)),
            ("onRename", place(&raw.on_rename)),
            ("onImmutable", place(&raw.on_immutable)),
            ("detectApiVersionChange", place(&raw.detect_api_version_change)),
            ("mapping", place(&raw.mapping)),
        ] {
            if let Some(place) = place {
                self.fault(
                    place,
                    format!("found `{field}` together with `external`; expected one of them: only Kubernetes objects have `{field}`"),
                );
            }
        }
    }

    /// Returns the source that knows what there is.
    fn outside_source(
        &mut self,
        (name, external): (&Arc<str>, &Located<raw::Outside>),
        bulk: bool,
        scope: &mut Scope<'_>,
    ) -> Option<Arc<str>> {
        let Located { value: Scalar(Name(source)), place } =
            self.need(&external.value.source, external.place, "source")?;
        let sources = scope.sources();
        if sources.watched.contains_key(source) {
            self.fault(
                *place,
                format!("found `{source}`, which watches Kubernetes objects; expected a source with `poll`, `pollEach` or `inbound`"),
            );
            return None;
        }
        if !self.known(*place, "source", source, scope.source_names()) {
            return None;
        }
        if bulk && sources.polled.get(source).is_some_and(External::is_only_told) {
            self.fault(
                *place,
                format!("found `{source}` together with `bulk: true`: requests don't say all that there is, so that it is not known what is too much; expected a source with `poll` or `pollEach`, or `fetch` at this one"),
            );
        }
        if let Some(other) = scope.shares_source(name, source, bulk) {
            self.fault(
                *place,
                format!("found `{source}`, which the dependent `{other}` has, too, and one of them is a bulk, to which all things of its source belong; expected a source for each"),
            );
        }
        Some(Arc::clone(source))
    }

    // KD-4
    fn outside_id(&mut self, raw: &raw::Dependent, keyed: bool) -> Option<Expression> {
        let Located { value: raw::ObjectName::Cel(cel), place } = located(&raw.name)?;
        if flag(&raw.bulk, false) {
            self.fault(*place, "found `name` together with `bulk: true`; expected one of them: the things of a bulk are those that `desired-set` answers");
        } else if keyed {
            self.fault(*place, "found `name`, which says the id, together with `key`; expected one of them");
        }
        self.cel(cel, *place, (&["primary"], Right::Text))
    }

    fn outside_matching(&mut self, field: &Maybe<raw::Match>) -> Matching {
        if let Some(raw::Match::Generic(generic)) = get(field)
            && let Some(strict) = generic.read().and_then(|generic| located(&generic.value.strict_metadata))
        {
            self.fault(strict.place, "found `strictMetadata` together with `external`; expected one of them: what is outside of the cluster has no labels and annotations");
        }
        if let Some(Located { place, .. }) = located(field).filter(|field| matches!(field.value, raw::Match::DryRun)) {
            self.fault(*place, "found `match: dryRun` together with `external`; expected one of them: only the API server can try a write");
        }
        match self.matching(field) {
            Matching::Usual | Matching::DryRun => {
                Matching::Generic(GenericMatching { equality: true, ..GenericMatching::default() })
            }
            other @ (Matching::Generic(_) | Matching::Export(_)) => other,
        }
    }

    /// Returns the objects that remember ids, under a name that nothing else has.
    fn state(
        &mut self,
        name: &Arc<str>,
        around: usize,
        field: &Maybe<raw::StateKind>,
        scope: &mut Scope<'_>,
    ) -> Option<State> {
        let Located { value, place } = located(field)?;
        let gvk = self.gvk(&value.api_version, &value.kind, *place)?;
        let own: Arc<str> = format!("{name}{STATE}").into();
        let line = self.mark(around).line;
        if scope.source_names().contains(&*own) {
            self.fault(*place, format!("found `state`, whose source is called `{own}` like a source that is declared; expected another name there"));
        } else if scope.take(&own, line).is_some() {
            self.fault(
                *place,
                format!(
                    "found `state`, whose source is called `{own}` like another dependent; expected another name there"
                ),
            );
        }
        let server_side_apply = scope.usual().applied.of(&gvk);
        Some(State { name: own, dependent: Dependent { bulk: true, server_side_apply, ..Dependent::of(gvk) } })
    }

    fn outside_condition(&mut self, field: &Maybe<raw::Condition>, bulk: bool) -> Option<Condition> {
        let (Located { value, place }, of_objects) =
            (located(field)?, "together with `external`; expected `cel` or `export`");
        let found = match value {
            raw::Condition::Ready(_) => "found `ready`, by which Kubernetes objects are judged,",
            raw::Condition::CrdPresent => "found `crdPresent`, which asks for a kind of Kubernetes objects,",
            raw::Condition::Gone | raw::Condition::Cel(_) | raw::Condition::Export(_) => {
                return self.condition(field, None, bulk);
            }
        };
        self.fault(*place, format!("{found} {of_objects}"));
        None
    }
}
