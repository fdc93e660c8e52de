//! Puts right less and less often what others keep changing, and says once who changes what (LG rules).

use std::sync::Arc;

use tokio::time::Instant;

use super::visitor::Visitor;
use crate::dependent::managed_fields::owners;
use crate::guest::{Context as _, Event};
use crate::manifest::{Dependent, Matching};
use crate::object::{Object, ObjectRef};
use crate::text::said_within;

/// The most field managers that are named, and the longest text about one, in bytes.
const NAMED: usize = 3;
const LONGEST: usize = 128;

/// An object that differs from what is wanted.
pub(super) struct Drift<'a> {
    /// The dependent.
    pub(super) name: &'a Arc<str>,
    pub(super) spec: &'a Dependent,
    /// The object.
    pub(super) key: &'a ObjectRef,
    /// The hash of what is wanted.
    pub(super) wanted: u64,
    /// What differs, in words; `None`: it is not there.
    pub(super) what: Option<&'a str>,
}

impl Visitor<'_> {
    /// Returns true if an object is not put right yet, because others have changed it back too often.
    pub(super) async fn is_held(&self, drift: &Drift<'_>) -> bool {
        let Self { run, .. } = self;
        let (now, verdicts) = (Instant::now(), &run.controller.verdicts);
        let Some((until, known)) = verdicts.held(&run.primary, (drift.name, drift.key), drift.wanted, now) else {
            return false;
        };
        run.hold(drift.name, until);
        if !known {
            let why: Arc<str> = self.explain(drift).await.into();
            let (dependent, object) = (drift.name, drift.key);
            tracing::warn!(%dependent, %object, %why, "others keep changing a dependent: it is put right less and less often");
            let message = format!("dependent {dependent}, {object}: {why}; it is put right less and less often");
            run.publish(Event::warning("DependentContested", message, format!("contested {dependent}")));
            verdicts.change_contests(&run.primary, |all| all.explain(dependent, object, why));
        }
        true
    }

    /// Takes in that an object was put right, if it had been as it is wanted before.
    pub(super) fn note_put_right(&self, drift: &Drift<'_>) {
        let Self { run, .. } = self;
        let Drift { name, spec, key, wanted, .. } = drift;
        let verdicts = &run.controller.verdicts;
        // What is wanted for the first time, nobody has changed back.
        if self.has_matched((name, spec), key, *wanted) {
            verdicts.change_contests(&run.primary, |all| all.note(name, key, *wanted, Instant::now()));
        }
    }

    /// Returns which field of an object others keep changing, and who did last, never its contents.
    async fn explain(&self, drift: &Drift<'_>) -> String {
        let Some(what) = drift.what else {
            return "others keep deleting it".to_owned();
        };
        // What a component says of a difference may be anything.
        let own = matches!(drift.spec.matching, Matching::Export(_));
        let pointer = what.split_once(": ").map(|(pointer, _)| pointer);
        let Some(pointer) = pointer.filter(|pointer| !own && pointer.starts_with('/')) else {
            return "others keep changing it".to_owned();
        };
        let Self { run, .. } = self;
        let looking = run.controller.cluster.look(&drift.spec.gvk, drift.key);
        let live = run.asked(looking).await.ok().flatten();
        let by = live.map(|live| self.last_managers(&live, pointer)).unwrap_or_default();
        let pointer = said_within(pointer, LONGEST);
        if by.is_empty() {
            format!("others keep changing {pointer}")
        } else {
            format!("others keep changing {pointer}, last {by}")
        }
    }

    /// Returns who has changed a field last, as far as that is recorded.
    fn last_managers(&self, live: &Object, pointer: &str) -> String {
        let Self { run, .. } = self;
        let own = &run.controller.spec.field_manager;
        let found = owners(live, pointer, own, &mut run.budget.lock()).unwrap_or_default();
        let names: Vec<_> = found.into_iter().take(NAMED).map(|name| said_within(name, LONGEST)).collect();
        names.join(", ")
    }
}
