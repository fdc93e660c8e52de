//! Shows a controller's state: for pages, and for readiness.

use capstan_core::external::Counts;
use capstan_core::object::{Gvk, ObjectRef};
use capstan_core::reconciler::verdicts::Walks;
use capstan_core::startup::Obstacle;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Handle, Phase};
use crate::controller::failing::LastError;
use crate::readiness::{Matter, Unready};

/// The run that failed last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// The controller.
    pub controller: String,
    /// The primary: `namespace/name`.
    pub key: String,
    /// Why.
    #[serde(flatten)]
    pub error: LastError,
}

/// The state of a controller with some of its keys.
pub struct Described {
    /// The state.
    pub state: Value,
    /// The number of keys in it.
    pub keys: usize,
    /// The last of them.
    pub last: Option<ObjectRef>,
    /// True if there are more keys after that.
    pub more: bool,
}

impl Handle {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what a change is waiting for while the controller runs as before; `None` if no change waits.
    pub fn waiting(&self) -> Option<String> {
        match &*self.phase.lock() {
            Phase::Changing(why) => Some(why.clone()),
            Phase::Resolving(_) | Phase::Filling(_) | Phase::Running | Phase::Stopped | Phase::Failed(_) => None,
        }
    }

    /// Returns why it is not ready; `None` if it is.
    pub fn unready(&self) -> Option<Unready> {
        let Obstacle { why, under_way } = match &*self.phase.lock() {
            Phase::Resolving(obstacle) | Phase::Filling(obstacle) | Phase::Failed(obstacle) => obstacle.clone(),
            Phase::Stopped => Obstacle::lacking("stopped"),
            Phase::Running | Phase::Changing(_) => self.without.lock().clone()?,
        };
        let matter = if under_way { Matter::Start } else { Matter::Operator };
        Some(Unready { what: format!("controller {}", self.name), why, matter })
    }

    /// Warns of primaries that carry its finalizer, which nothing removes once the controller is gone. Returns their kind, the finalizer, and how
    /// many they are; `None` if there are none.
    pub fn warn_of_carriers(&self) -> Option<(Gvk, String, usize)> {
        let controller = self.controller()?;
        let finalizer = controller.used_finalizer()?;
        let primaries = controller.primaries.carrying(finalizer);
        if primaries == 0 {
            return None;
        }
        tracing::warn!(controller = %self.name, finalizer, primaries, "primaries carry the finalizer of a controller that goes: they can't be deleted until somebody removes it");
        Some((controller.spec.primary.clone(), finalizer.to_owned(), primaries))
    }

    /// Returns what the workflows of its primaries came to.
    pub fn walks(&self) -> &Walks {
        &self.verdicts.walks
    }

    /// Returns how many primaries it has, and how many of them fail.
    pub fn primaries(&self) -> (usize, usize) {
        (self.queue.len(), self.failing.count())
    }

    /// Returns how many primaries could run now if `concurrency` permitted.
    pub fn due(&self) -> usize {
        self.queue.counts(Instant::now()).due
    }

    /// Returns why a run failed last, of those whose primaries still fail; `None` if none does.
    pub fn last_error(&self) -> Option<LastFailure> {
        let (key, error) = self.failing.last()?;
        Some(LastFailure { controller: self.name.to_string(), key: key.to_string(), error })
    }

    /// Returns its state for `/debug/controllers`, with the first `limit` keys behind `after`.
    pub fn describe(&self, after: Option<&ObjectRef>, limit: usize) -> Described {
        let now = Instant::now();
        let counts = self.queue.counts(now);
        let mut states = self.queue.states(now, after, limit.saturating_add(1));
        let more = states.len() > limit;
        states.truncate(limit);
        let (shown, last) = (states.len(), states.last().map(|state| state.key.clone()));
        let keys = states.into_iter().map(|state| {
            json!({
                "key": state.key.to_string(),
                "inFlight": state.in_flight,
                "paused": self.verdicts.is_paused(&state.key),
                "mark": format!("{:?}", state.mark),
                "attempt": state.retry.map(|retry| retry.attempt),
                "lastError": self.failing.of(&state.key),
                "dueInMs": state.due_in.map(|due| u64::try_from(due.as_millis()).unwrap_or(u64::MAX)),
            })
        });
        let (phase, why) = match &*self.phase.lock() {
            Phase::Resolving(obstacle) => ("resolving", Some(obstacle.why.clone())),
            Phase::Filling(obstacle) => ("filling", Some(obstacle.why.clone())),
            Phase::Running => ("running", self.without.lock().as_ref().map(|without| without.why.clone())),
            Phase::Changing(why) => ("changing", Some(why.clone())),
            Phase::Stopped => ("stopped", None),
            Phase::Failed(obstacle) => ("failed", Some(obstacle.why.clone())),
        };
        let former: serde_json::Map<_, _> = self.controller().map_or_else(Default::default, |now| {
            let former = now.spec.former_finalizers.iter();
            former.map(|name| (name.to_string(), now.primaries.carrying(name).into())).collect()
        });
        let polled: serde_json::Map<_, _> = self.controller().map_or_else(Default::default, |now| {
            now.externals.iter().map(|(name, source)| (name.to_string(), figures(source.counts()))).collect()
        });
        let registered: serde_json::Map<_, _> = self.controller().map_or_else(Default::default, |now| {
            let registered = now.registered.watched();
            registered.iter().map(|(name, source)| (name.to_string(), source.spec().gvk.to_string().into())).collect()
        });
        let state = json!({
            "name": &*self.name,
            "phase": phase,
            "why": why,
            "formerFinalizers": former,
            "selectedNamespaces": self.selection.lock().names(),
            "polled": polled,
            "registered": registered,
            "keys": counts.keys,
            "failing": self.failing.count(),
            "lastError": self.last_error(),
            "due": counts.due,
            "inFlight": counts.in_flight,
            "paused": self.verdicts.paused(),
            "remembered": self.verdicts.remembered(),
            "ownWrites": self.controller().map_or(0, |now| now.own_writes()),
            "states": keys.collect::<Vec<_>>(),
        });
        Described { state, keys: shown, last, more }
    }
}

/// Returns what is shown of a source outside of the cluster: never its things.
fn figures(counts: Counts) -> Value {
    let Counts { primaries, things, bytes, failures } = counts;
    json!({ "primaries": primaries, "things": things, "bytes": bytes, "failuresInARow": failures })
}
