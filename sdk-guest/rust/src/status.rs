//! Decides what becomes of the conditions in a status when one of them is set.

use serde::{Deserialize, Serialize};

use crate::system;

/// A condition in the status of a primary, as Kubernetes knows it. Of its type there is one in a status.
///
/// ```
/// use capstan_guest::{Result, StatusCondition, Update, set_condition};
/// # use capstan_guest::Metadata;
/// # use serde_json::json;
///
/// # struct Status { conditions: Vec<StatusCondition> }
/// # struct WebPage { metadata: Metadata, status: Status }
/// fn reconcile(page: &WebPage) -> Result<Update> {
///     let mut conditions = page.status.conditions.clone();
///     let synced = StatusCondition::new("Synced", true, "UpToDate", "all of it is published").at(page.metadata.generation);
///     set_condition(&mut conditions, synced);
///     Ok(Update::status(json!({ "conditions": conditions })))
/// }
/// # let metadata: Metadata = serde_json::from_str(r#"{"name":"a","generation":2}"#)?;
/// # let page = WebPage { metadata, status: Status { conditions: Vec::new() } };
/// # let run = capstan_guest::test::with(capstan_guest::test::Run::new(), || reconcile(&page));
/// # assert!(run.answer.is_ok());
/// # Ok::<_, serde_json::Error>(())
/// ```
///
/// Where the manifest says `statusConditions: standard`, `Ready`, `Progressing` and `Degraded` are the daemon's, and what is answered in
/// their place is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// What is or is not so, in CamelCase.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it is.
    pub status: ConditionStatus,
    /// The generation of the primary of which that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Since when it is; set by [`set_condition`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Why, as one word in CamelCase.
    #[serde(default)]
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
}

/// Whether a condition is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    /// It is.
    True,
    /// It is not.
    False,
    /// That is not known.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(is_so: bool) -> Self {
        if is_so { Self::True } else { Self::False }
    }
}

impl StatusCondition {
    /// Returns a condition, which says nothing of a generation yet.
    pub fn new(
        kind: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind: kind.into(),
            status: status.into(),
            observed_generation: None,
            last_transition_time: None,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Returns the same for a generation of the primary.
    #[must_use]
    pub fn at(self, generation: impl Into<Option<i64>>) -> Self {
        Self { observed_generation: generation.into(), ..self }
    }
}

/// Puts a condition in the place of the one of its type, or behind the others. Its time is kept as long as its status is, else it is
/// now. Returns whether anything is different.
pub fn set_condition(conditions: &mut Vec<StatusCondition>, mut new: StatusCondition) -> bool {
    let old = conditions.iter_mut().find(|old| old.kind == new.kind);
    let since = old.as_ref().filter(|old| old.status == new.status).and_then(|old| old.last_transition_time.clone());
    new.last_transition_time = Some(since.unwrap_or_else(system::now));
    match old {
        Some(old) if *old == new => return false,
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test::{self, Run};

    #[test]
    fn the_time_of_a_condition_changes_with_its_status_alone() {
        let at = |time: &str, conditions: &mut Vec<StatusCondition>, new: StatusCondition| {
            test::with(Run::new().now(time, 0.0), || set_condition(conditions, new)).answer
        };
        let (one, two, three) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z");
        let synced =
            |status: bool, message: &str| StatusCondition::new("Synced", status, "Copied", message).at(Some(2));
        let mut all = vec![StatusCondition::new("Other", ConditionStatus::Unknown, "None", "")];
        assert!(at(one, &mut all, synced(false, "half")));
        assert!(at(two, &mut all, synced(false, "more")), "another message");
        assert!(!at(two, &mut all, synced(false, "more")), "nothing else");
        assert_eq!(all[1].last_transition_time.as_deref(), Some(one));
        assert!(at(three, &mut all, synced(true, "all")));
        let written = json!([
            { "type": "Other", "status": "Unknown", "reason": "None", "message": "" },
            { "type": "Synced", "status": "True", "observedGeneration": 2, "lastTransitionTime": three, "reason": "Copied", "message": "all" },
        ]);
        assert_eq!(serde_json::to_value(&all).unwrap(), written);
        assert_eq!(serde_json::from_value::<Vec<StatusCondition>>(written).unwrap(), all);
        let bare: StatusCondition = serde_json::from_str(r#"{"type":"Synced","status":"True"}"#).unwrap();
        let mut all = vec![bare];
        at(two, &mut all, synced(true, "all"));
        assert_eq!(all[0].last_transition_time.as_deref(), Some(two), "whoever wrote it said none");
    }
}
