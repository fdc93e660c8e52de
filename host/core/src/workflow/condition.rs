//! Decides whether a condition is met that needs no component: readiness as kubectl judges it, absence, and CEL
//! expressions (WF-1, WF-11).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::Budget;
use crate::cel::{Expression, Failure, KEPT_BACK};
use crate::guest::ConditionResult;
use crate::yaml;

/// What a CEL condition can speak about.
pub const VARIABLES: [&str; 2] = ["primary", "dependent"];

/// What a CEL condition of a bulk dependent can speak about.
pub const VARIABLES_OF_BULK: [&str; 2] = ["primary", "dependents"];

/// Kinds whose readiness is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
pub enum ReadyKind {
    /// `apps/v1 Deployment`.
    Deployment,
    /// `apps/v1 StatefulSet`.
    StatefulSet,
    /// `apps/v1 DaemonSet`.
    DaemonSet,
    /// `apps/v1 ReplicaSet`.
    ReplicaSet,
    /// `v1 Pod`: condition `Ready`.
    Pod,
    /// `batch/v1 Job`: condition `Complete`.
    Job,
    /// Any kind with a condition `Ready` that is `True`.
    Condition,
}

/// What there is of a dependent.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Its object; null if it does not exist.
    One(Value),
    /// Those objects of a bulk dependent that exist, as a list (`BD-3`).
    Many(Value),
}

impl Found {
    /// Returns that there is nothing of a dependent, or of a bulk.
    pub fn nothing(bulk: bool) -> Self {
        if bulk { Self::Many(Value::Array(Vec::new())) } else { Self::One(Value::Null) }
    }
}

/// Judges an expression over the [`VARIABLES`], or those of a bulk, which the budget pays for. What is said of one that has no value may quote
/// what was found, so not if that `shows_secret`.
///
/// # Errors
/// Those of [`Expression::met`].
pub fn met(
    expression: &Expression,
    primary: &Value,
    found: &Found,
    shows_secret: bool,
    budget: &mut Budget,
) -> Result<ConditionResult, Failure> {
    let found = match found {
        Found::One(dependent) => ("dependent", dependent),
        Found::Many(dependents) => ("dependents", dependents),
    };
    let variables = [("primary", primary), found];
    let met = expression.met(&variables, budget).map_err(|failure| failure.kept_back(shows_secret))?;
    let told = |why: String| if shows_secret { KEPT_BACK.to_owned() } else { why };
    Ok(met.map_or_else(|why| ConditionResult::unmet(&told(why)), |()| ConditionResult::met()))
}

/// Returns whether an object is ready, as `kubectl rollout status` and `kubectl wait` judge, with the reason if not; of a bulk,
/// whether each of those that exist is.
pub fn ready(kind: ReadyKind, found: &Found) -> ConditionResult {
    let waiting = match found {
        Found::One(Value::Null) => Some("it does not exist".to_owned()),
        Found::One(object) => waits(kind, object),
        Found::Many(list) => first_of(list, |object| waits(kind, object)),
    };
    waiting.map_or_else(ConditionResult::met, |text| ConditionResult::unmet(&text))
}

/// Returns what an object waits for until it is ready.
fn waits(kind: ReadyKind, object: &Value) -> Option<String> {
    let facts = Facts { object };
    match kind {
        ReadyKind::Deployment => facts.deployment(),
        ReadyKind::StatefulSet => facts.stateful_set(),
        ReadyKind::DaemonSet => facts.daemon_set(),
        ReadyKind::ReplicaSet => facts.replica_set(),
        ReadyKind::Job => facts.job(),
        ReadyKind::Pod | ReadyKind::Condition => facts.condition("Ready"),
    }
}

/// Returns whether an object does not exist (`WF-11`); of a bulk, whether none does.
pub fn gone(found: &Found) -> ConditionResult {
    let there = match found {
        Found::One(Value::Null) => None,
        Found::One(object) => Some(stays(object)),
        Found::Many(list) => first_of(list, |object| Some(stays(object))),
    };
    there.map_or_else(ConditionResult::met, |text| ConditionResult::unmet(&text))
}

/// Returns whether a dependent's kind is there to be used (`WF-11`): the API server serves it, and its source is not without it, as it is
/// until the controller has been prepared for a kind that has just come.
pub fn present(served: bool, without: bool) -> ConditionResult {
    match (served, without) {
        (false, _) => ConditionResult::unmet("the API server does not serve its kind"),
        (true, true) => ConditionResult::unmet("its kind has come, and is not watched yet"),
        (true, false) => ConditionResult::met(),
    }
}

/// Returns how an object is still there.
fn stays(object: &Value) -> String {
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
    if deleting { "it is being deleted" } else { "it exists" }.to_owned()
}

/// Returns what `say` says of the first object of a list of which it says something, with the object's name and how many there are.
fn first_of(list: &Value, say: impl Fn(&Value) -> Option<String>) -> Option<String> {
    let all = list.as_array().map_or(&[][..], Vec::as_slice);
    let mut said = all.iter().filter_map(|object| Some((object, say(object)?)));
    let (object, text) = said.next()?;
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Some(format!("{} of {} objects, first {name}: {text}", 1 + said.count(), all.len()))
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
        self.unobserved()
            .or_else(|| (available < wanted).then(|| format!("{available} of {wanted} replicas are available")))
    }

    fn job(&self) -> Option<String> {
        match self.find("Failed") {
            Some(failed) if is_true(failed) => Some(format!("it has failed{}", message_of(failed))),
            _ => self.condition("Complete"),
        }
    }

    /// Judges a condition of the status; one that was made for an older generation says nothing.
    fn condition(&self, wanted: &str) -> Option<String> {
        let Some(condition) = self.find(wanted) else {
            return Some(format!("it has no condition {wanted}"));
        };
        let observed = condition.get("observedGeneration").and_then(Value::as_i64);
        let observed = observed.or_else(|| self.number("/status/observedGeneration"));
        let generation = self.number("/metadata/generation");
        match condition.get("status").and_then(Value::as_str) {
            _ if observed.zip(generation).is_some_and(|(observed, generation)| observed < generation) => {
                Some(format!("its condition {wanted} is of an older generation"))
            }
            Some("True") => None,
            other => Some(format!("its condition {wanted} is {}{}", other.unwrap_or("Unknown"), message_of(condition))),
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

fn is_true(condition: &Value) -> bool {
    condition.get("status").is_some_and(|status| status == "True")
}

/// Returns what a condition says of itself, after a colon.
fn message_of(condition: &Value) -> String {
    let message = condition.get("message").and_then(Value::as_str).filter(|text| !text.is_empty());
    message.map(|text| format!(": {text}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks rows of an object and why it is not ready.
    fn check(kind: ReadyKind, rows: &[(Value, Option<&str>)]) {
        for (object, reason) in rows {
            assert_eq!(
                ready(kind, &Found::One(object.clone())),
                reason.map_or_else(ConditionResult::met, ConditionResult::unmet),
                "{object}"
            );
        }
        assert_eq!(ready(kind, &Found::nothing(false)), ConditionResult::unmet("it does not exist"));
    }

    #[expect(clippy::needless_pass_by_value, reason = "tables read better")]
    fn object(spec: Value, status: Value) -> Value {
        json!({"metadata": {"generation": 2}, "spec": spec, "status": status})
    }

    #[test]
    #[rustfmt::skip]
    fn a_deployment_is_ready_when_its_rollout_is_complete() {
        let status = |updated: i64, all: i64, available: i64| json!({"observedGeneration": 2, "updatedReplicas": updated, "replicas": all, "availableReplicas": available});
        let late = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
        check(
            ReadyKind::Deployment,
            &[
                (object(json!({"replicas": 2}), status(2, 2, 2)), None),
                (object(json!({}), status(1, 1, 1)), None),
                (object(json!({"replicas": 0}), json!({"observedGeneration": 2})), None),
                (object(json!({"replicas": 2}), json!({"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2})), Some("its controller has not seen the last change")),
                (object(json!({"replicas": 2}), json!({})), Some("its controller has not seen the last change")),
                (object(json!({}), status(0, 0, 0)), Some("0 of 1 replicas are updated")),
                (object(json!({"replicas": 2}), status(1, 2, 2)), Some("1 of 2 replicas are updated")),
                (object(json!({"replicas": 2}), status(2, 3, 2)), Some("1 old replicas are still there")),
                (object(json!({"replicas": 2}), status(2, 2, 1)), Some("1 of 2 updated replicas are available")),
                (object(json!({"replicas": 2}), late), Some("it has exceeded its progress deadline")),
            ],
        );
    }

    #[test]
    #[rustfmt::skip]
    fn a_stateful_set_is_ready_when_its_revision_is_out() {
        let status = |ready: i64, updated: i64, current: &str| json!({"observedGeneration": 2, "readyReplicas": ready, "updatedReplicas": updated, "currentRevision": current, "updateRevision": "b"});
        let partition = |n: i64| json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": n}}});
        check(
            ReadyKind::StatefulSet,
            &[
                (object(json!({"replicas": 3}), status(3, 3, "b")), None),
                (object(json!({"replicas": 3}), status(2, 3, "b")), Some("2 of 3 replicas are ready")),
                (object(json!({}), status(0, 0, "b")), Some("0 of 1 replicas are ready")),
                (object(json!({"replicas": 3}), status(3, 1, "a")), Some("1 of 3 replicas are updated")),
                (object(partition(0), status(3, 1, "a")), Some("1 of 3 replicas are updated")),
                (object(partition(2), status(3, 1, "a")), None),
                (object(partition(1), status(3, 1, "a")), Some("1 of 2 replicas beyond the partition are updated")),
                (object(partition(9), status(3, 0, "a")), None),
                (object(json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}}), status(3, 0, "a")), None),
                (json!({"metadata": {"generation": 3}, "spec": {"replicas": 3}, "status": status(3, 3, "b")}), Some("its controller has not seen the last change")),
            ],
        );
    }

    #[test]
    #[rustfmt::skip]
    fn a_daemon_set_is_ready_when_every_node_has_its_pod() {
        let status = |wanted: i64, updated: i64, available: i64| json!({"observedGeneration": 2, "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberAvailable": available});
        check(
            ReadyKind::DaemonSet,
            &[
                (object(json!({}), status(2, 2, 2)), None),
                (object(json!({}), json!({"observedGeneration": 2})), None),
                (object(json!({}), status(2, 1, 2)), Some("1 of 2 pods are updated")),
                (object(json!({}), status(2, 2, 1)), Some("1 of 2 pods are available")),
                (object(json!({"updateStrategy": {"type": "OnDelete"}}), status(2, 0, 2)), None),
                (object(json!({}), json!({})), Some("its controller has not seen the last change")),
            ],
        );
    }

    #[test]
    #[rustfmt::skip]
    fn a_replica_set_is_ready_when_its_replicas_are_available() {
        check(
            ReadyKind::ReplicaSet,
            &[
                (object(json!({"replicas": 2}), json!({"observedGeneration": 2, "availableReplicas": 2})), None),
                (object(json!({}), json!({"observedGeneration": 2})), Some("0 of 1 replicas are available")),
                (object(json!({}), json!({"observedGeneration": 1, "availableReplicas": 1})), Some("its controller has not seen the last change")),
            ],
        );
    }

    #[test]
    #[rustfmt::skip]
    fn other_kinds_are_ready_by_a_condition_of_the_last_generation() {
        let with = |condition: Value, more: Value| {
            let mut status =
                json!({"conditions": [{"type": "Other", "status": "True"}, condition]});
            status
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            object(json!({}), status)
        };
        check(
            ReadyKind::Condition,
            &[
                (with(json!({"type": "Ready", "status": "True"}), json!({})), None),
                (with(json!({"type": "Ready", "status": "True", "observedGeneration": 2}), json!({"observedGeneration": 1})), None),
                (with(json!({"type": "Ready", "status": "True", "observedGeneration": 1}), json!({})), Some("its condition Ready is of an older generation")),
                (with(json!({"type": "Ready", "status": "True"}), json!({"observedGeneration": 1})), Some("its condition Ready is of an older generation")),
                (with(json!({"type": "Ready", "status": "False", "message": "no space"}), json!({})), Some("its condition Ready is False: no space")),
                (with(json!({"type": "Ready"}), json!({})), Some("its condition Ready is Unknown")),
                (object(json!({}), json!({})), Some("it has no condition Ready")),
            ],
        );
        check(
            ReadyKind::Pod,
            &[(
                json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
                None,
            )],
        );
        check(
            ReadyKind::Job,
            &[
                (with(json!({"type": "Complete", "status": "True"}), json!({})), None),
                (with(json!({"type": "Failed", "status": "False"}), json!({})), Some("it has no condition Complete")),
                (with(json!({"type": "Failed", "status": "True", "message": "no more tries"}), json!({})), Some("it has failed: no more tries")),
            ],
        );
    }

    #[test]
    fn an_object_is_gone_when_there_is_none() {
        // WF-11
        let object = json!({"metadata": {}});
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let found = [Value::Null, object, going].map(|object| gone(&Found::One(object)));
        assert_eq!(
            found,
            [
                ConditionResult::met(),
                ConditionResult::unmet("it exists"),
                ConditionResult::unmet("it is being deleted")
            ]
        );
    }

    #[test]
    fn a_dependent_that_does_not_exist_is_null_to_an_expression() {
        let expression = Expression::parse("primary.spec.exposed && dependent == null", &VARIABLES).unwrap();
        let primary = json!({"spec": {"exposed": true}});
        for (dependent, expected) in
            [(Value::Null, ConditionResult::met()), (json!({}), ConditionResult::unmet("it is false"))]
        {
            assert_eq!(met(&expression, &primary, &Found::One(dependent), false, &mut Budget::of_run()), Ok(expected));
        }
    }

    #[test]
    fn of_a_bulk_each_object_has_to_be_ready_and_each_to_be_gone() {
        // BD-3
        let object = |name: &str, ready: &str| json!({ "metadata": { "name": name }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        let many = |list: &[(&str, &str)]| Found::Many(list.iter().map(|(name, ready)| object(name, ready)).collect());
        let expression = Expression::parse("size(dependents) == primary.spec.count", &VARIABLES_OF_BULK).unwrap();
        let primary = json!({ "spec": { "count": 2 } });
        let unmet = |text: &str| ConditionResult::unmet(text);
        for (found, readiness, absence, counted) in [
            (many(&[]), ConditionResult::met(), ConditionResult::met(), unmet("it is false")),
            (
                many(&[("a", "True"), ("b", "True")]),
                ConditionResult::met(),
                unmet("2 of 2 objects, first a: it exists"),
                ConditionResult::met(),
            ),
            (
                many(&[("a", "True"), ("b", "False"), ("c", "Unknown")]),
                unmet("2 of 3 objects, first b: its condition Ready is False"),
                unmet("3 of 3 objects, first a: it exists"),
                unmet("it is false"),
            ),
        ] {
            assert_eq!(ready(ReadyKind::Condition, &found), readiness);
            assert_eq!(gone(&found), absence);
            assert_eq!(met(&expression, &primary, &found, false, &mut Budget::of_run()), Ok(counted));
        }
    }
}
