//! Puts right less and less often what others keep changing, and says once who changes what (LG rules).

use std::borrow::Cow;
use std::sync::Arc;

use tokio::time::Instant;

use super::visitor::Visitor;
use crate::dependent::managed_fields::owners;
use crate::guest::{Context as _, Event};
use crate::manifest::{Dependent, Matching, Outside};
use crate::object::{Object, ObjectRef};
use crate::reconciler::run::Run;
use crate::reconciler::verdicts::Contests;
use crate::text::said_within;

/// The most field managers that are named, and the longest text about one, in bytes.
const NAMED: usize = 3;
const LONGEST: usize = 128;

/// What differs from what is wanted: an object, or a thing outside of the cluster.
pub(super) struct Drift<'a> {
    /// The dependent.
    pub(super) name: &'a Arc<str>,
    pub(super) of: Of<'a>,
    /// The hash of what is wanted.
    pub(super) wanted: u64,
    /// What differs, in words; `None`: it is not there.
    pub(super) what: Option<&'a str>,
}

/// What differs.
pub(super) enum Of<'a> {
    Object(&'a Dependent, &'a ObjectRef),
    /// A thing, by what tells it from others.
    Thing(&'a Outside, &'a str),
}

impl Of<'_> {
    /// Returns how it is called.
    fn key(&self) -> Cow<'_, str> {
        match self {
            Self::Object(_, key) => key.to_string().into(),
            Self::Thing(_, key) => (*key).into(),
        }
    }

    fn matching(&self) -> &Matching {
        match self {
            Self::Object(spec, _) => &spec.matching,
            Self::Thing(spec, _) => &spec.matching,
        }
    }
}

impl Visitor<'_> {
    /// Returns true if something is not put right yet, because others have changed it back too often.
    pub(super) async fn is_held(&self, drift: &Drift<'_>) -> bool {
        let Self { run, .. } = self;
        let (now, verdicts, key) = (Instant::now(), &run.controller.verdicts, drift.of.key());
        let Some((until, known)) = verdicts.held(&run.primary, (drift.name, &key), drift.wanted, now) else {
            return false;
        };
        run.hold(drift.name, until);
        if !known {
            let why: Arc<str> = self.explain(drift).await.into();
            let (dependent, object) = (drift.name, said_within(&key, LONGEST));
            tracing::warn!(%dependent, %object, %why, "others keep changing a dependent: it is put right less and less often");
            let message = format!("dependent {dependent}, {object}: {why}; it is put right less and less often");
            run.publish(Event::warning("DependentContested", message, format!("contested {dependent}")));
            verdicts.change_contests(&run.primary, |all| all.explain(dependent, &key, why));
        }
        true
    }

    /// Takes in that something was put right, if it had been as it is wanted before; a thing counts from the first time.
    pub(super) fn note_put_right(&self, drift: &Drift<'_>) {
        let Self { run, .. } = self;
        let Drift { name, of, wanted, .. } = drift;
        // What is wanted for the first time, nobody has changed back.
        let counts = match of {
            Of::Object(spec, key) => self.has_matched((name, spec), key, *wanted),
            Of::Thing(..) => true,
        };
        let note = |all: &mut Contests| {
            if counts {
                all.note(name, &of.key(), *wanted, Instant::now());
            } else {
                all.forget_former(name, &of.key(), *wanted);
            }
        };
        run.controller.verdicts.change_contests(&run.primary, note);
    }

    /// Takes in that the daemon itself deletes an object: nobody else has.
    pub(super) fn forget_contest(&self, name: &str, object: &ObjectRef) {
        let Run { controller, primary, .. } = self.run;
        controller.verdicts.change_contests(primary, |all| all.forget(name, Some(&object.to_string())));
    }

    /// Returns which field others keep changing, and of an object who did last, never its contents.
    async fn explain(&self, drift: &Drift<'_>) -> String {
        let Some(what) = drift.what else {
            return "others keep deleting it".to_owned();
        };
        // What a component says of a difference may be anything.
        let own = matches!(drift.of.matching(), Matching::Export(_));
        let pointer = what.split_once(": ").map(|(pointer, _)| pointer);
        let Some(pointer) = pointer.filter(|pointer| !own && pointer.starts_with('/')) else {
            return "others keep changing it".to_owned();
        };
        let by = match drift.of {
            Of::Object(spec, key) => {
                let Self { run, .. } = self;
                let live = run.asked(run.controller.cluster.look(&spec.gvk, key)).await.ok().flatten();
                live.map(|live| self.last_managers(&live, pointer)).unwrap_or_default()
            }
            Of::Thing(..) => String::new(),
        };
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
