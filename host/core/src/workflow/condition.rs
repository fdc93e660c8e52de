//! Decides whether a condition is met that needs no component: readiness as kubectl judges it, absence, and CEL
//! expressions (WF-1, WF-11).

use std::sync::Arc;

use serde_json::Value;

use crate::guest::ConditionResult;
use crate::manifest::{Condition, ReadyKind};

pub use super::expression::{Error, Expression};

/// A condition, ready to be judged.
#[derive(Clone, Debug)]
pub enum Check {
    /// The dependent is ready.
    Ready(ReadyKind),
    /// The dependent's object does not exist.
    Gone,
    /// An expression.
    Cel(Expression),
    /// This export of the component has to be asked.
    Export(Arc<str>),
}

// === impl Check ===

impl Check {
    /// Prepares a declared condition.
    ///
    /// # Errors
    /// Those of [`Expression::parse`].
    pub fn new(condition: &Condition) -> Result<Self, Error> {
        Ok(match condition {
            Condition::Ready(kind) => Self::Ready(*kind),
            Condition::Gone => Self::Gone,
            Condition::Cel(text) => Self::Cel(Expression::parse(text)?),
            Condition::Export(name) => Self::Export(name.clone()),
        })
    }

    /// Judges the condition by the primary and the dependent's object, if that exists; none if the component has to be
    /// asked.
    ///
    /// # Errors
    /// Those of [`Expression::met`].
    pub fn judge(&self, primary: &Value, dependent: Option<&Value>) -> Result<Option<ConditionResult>, Error> {
        match self {
            Self::Ready(kind) => Ok(Some(ready(*kind, dependent))),
            Self::Gone => Ok(Some(gone(dependent))),
            Self::Cel(expression) => expression.met(primary, dependent).map(Some),
            Self::Export(_) => Ok(None),
        }
    }
}

// === readiness ===

/// Returns whether an object is ready, as `kubectl rollout status` and `kubectl wait` judge, with the reason if not.
pub fn ready(kind: ReadyKind, object: Option<&Value>) -> ConditionResult {
    let Some(object) = object else { return unmet("it does not exist") };
    let facts = Facts { object };
    let waiting = match kind {
        ReadyKind::Deployment => facts.deployment(),
        ReadyKind::StatefulSet => facts.stateful_set(),
        ReadyKind::DaemonSet => facts.daemon_set(),
        ReadyKind::ReplicaSet => facts.replica_set(),
        ReadyKind::Job => facts.condition("Complete"),
        ReadyKind::Pod | ReadyKind::Condition => facts.condition("Ready"),
    };
    waiting.map_or_else(met, |text| unmet(&text))
}

/// Returns whether an object does not exist (`WF-11`).
pub fn gone(object: Option<&Value>) -> ConditionResult {
    match object {
        None => met(),
        Some(object) if object.pointer("/metadata/deletionTimestamp").is_some() => unmet("it is being deleted"),
        Some(_) => unmet("it exists"),
    }
}

pub(super) fn met() -> ConditionResult {
    ConditionResult { met: true, detail: None }
}

pub(super) fn unmet(reason: &str) -> ConditionResult {
    ConditionResult { met: false, detail: Some(Value::from(reason).to_string()) }
}

/// What an object says about its readiness. Each judgement returns what is being waited for.
struct Facts<'a> {
    object: &'a Value,
}

impl Facts<'_> {
    fn deployment(&self) -> Option<String> {
        let wanted = self.replicas();
        let (all, updated) = (self.count("replicas"), self.count("updatedReplicas"));
        let available = self.count("availableReplicas");
        self.unobserved().or_else(|| {
            if self.reason_of("Progressing") == Some("ProgressDeadlineExceeded") {
                Some("it has exceeded its progress deadline".to_owned())
            } else if updated < wanted {
                Some(format!("{updated} of {wanted} replicas are updated"))
            } else if all > updated {
                Some(format!("{} old replicas are still there", all - updated))
            } else {
                (available < updated).then(|| format!("{available} of {updated} updated replicas are available"))
            }
        })
    }

    fn stateful_set(&self) -> Option<String> {
        let wanted = self.replicas();
        let (ready, updated) = (self.count("readyReplicas"), self.count("updatedReplicas"));
        let partition = self.number("/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
        let rolling = self.text("/spec/updateStrategy/type").is_none_or(|strategy| strategy == "RollingUpdate");
        self.unobserved().or_else(|| {
            if ready < wanted {
                Some(format!("{ready} of {wanted} replicas are ready"))
            } else if rolling && partition > 0 {
                let due = (wanted - partition).max(0);
                (updated < due).then(|| format!("{updated} of {due} replicas beyond the partition are updated"))
            } else {
                let same = self.text("/status/updateRevision") == self.text("/status/currentRevision");
                (rolling && !same).then(|| format!("{updated} of {wanted} replicas are updated"))
            }
        })
    }

    fn daemon_set(&self) -> Option<String> {
        let wanted = self.count("desiredNumberScheduled");
        let (updated, available) = (self.count("updatedNumberScheduled"), self.count("numberAvailable"));
        let rolling = self.text("/spec/updateStrategy/type").is_none_or(|strategy| strategy == "RollingUpdate");
        self.unobserved().or_else(|| {
            if rolling && updated < wanted {
                Some(format!("{updated} of {wanted} pods are updated"))
            } else {
                (available < wanted).then(|| format!("{available} of {wanted} pods are available"))
            }
        })
    }

    fn replica_set(&self) -> Option<String> {
        let (wanted, available) = (self.replicas(), self.count("availableReplicas"));
        self.unobserved().or_else(|| {
            (available < wanted).then(|| format!("{available} of {wanted} replicas are available"))
        })
    }

    /// Judges a condition of the status; one that was made for an older generation says nothing.
    fn condition(&self, wanted: &str) -> Option<String> {
        let Some(condition) = self.find(wanted) else { return Some(format!("it has no condition {wanted}")) };
        let observed = condition.get("observedGeneration").and_then(Value::as_i64);
        let observed = observed.or_else(|| self.number("/status/observedGeneration"));
        let generation = self.number("/metadata/generation");
        match condition.get("status").and_then(Value::as_str) {
            _ if observed.zip(generation).is_some_and(|(observed, generation)| observed < generation) => {
                Some(format!("its condition {wanted} is of an older generation"))
            }
            Some("True") => None,
            other => {
                let message = condition.get("message").and_then(Value::as_str).filter(|text| !text.is_empty());
                let message = message.map(|text| format!(": {text}")).unwrap_or_default();
                Some(format!("its condition {wanted} is {}{message}", other.unwrap_or("Unknown")))
            }
        }
    }

    /// What kinds with replicas say of every change: whether their controller has seen it.
    fn unobserved(&self) -> Option<String> {
        let generation = self.number("/metadata/generation").unwrap_or(0);
        let observed = self.number("/status/observedGeneration").unwrap_or(0);
        (observed < generation).then(|| "its controller has not seen the last change".to_owned())
    }

    fn replicas(&self) -> i64 {
        self.number("/spec/replicas").unwrap_or(1)
    }

    fn count(&self, field: &str) -> i64 {
        self.object.get("status").and_then(|status| status.get(field)).and_then(Value::as_i64).unwrap_or(0)
    }

    fn number(&self, pointer: &str) -> Option<i64> {
        self.object.pointer(pointer).and_then(Value::as_i64)
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.object.pointer(pointer).and_then(Value::as_str)
    }

    fn reason_of(&self, condition: &str) -> Option<&str> {
        self.find(condition).and_then(|condition| condition.get("reason")).and_then(Value::as_str)
    }

    fn find(&self, condition: &str) -> Option<&Value> {
        let conditions = self.object.pointer("/status/conditions").and_then(Value::as_array)?;
        conditions.iter().find(|entry| entry.get("type").and_then(Value::as_str) == Some(condition))
    }
}
