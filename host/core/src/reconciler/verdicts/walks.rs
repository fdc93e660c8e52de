//! Remembers, for people, what the workflows of each primary's last run came to: within so many bytes, those go first whose run is longest ago.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::guest::{ConditionRole, NodeResult, Operation, WorkflowResult};
use crate::object::ObjectRef;
use crate::text;

/// The most memory for the primaries of a controller, in bytes.
const MOST: usize = 1 << 20;
/// The longest text about one primary, in bytes; nodes beyond it are counted.
const LONGEST: usize = 32 << 10;
/// The longest text about a failure, in bytes; the log has more of it.
const FAILURE: usize = 256;
/// What a primary takes beside its texts, in bytes.
const EACH: usize = 160;

/// What a workflow came to in the last run that walked it. Nothing in it is content of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walked {
    /// The name of a standalone workflow; `None`: the managed one.
    pub workflow: Option<String>,
    /// True if no node failed and no postcondition is unmet.
    pub complete: bool,
    /// The nodes that were reached, in the order of the graph.
    pub nodes: Vec<Reached>,
    /// How many more there were.
    pub more: usize,
}

/// What a node came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Reached {
    /// The dependent's name.
    pub name: String,
    /// How many objects were left as they are.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchanged: usize,
    /// How many were created.
    #[serde(skip_serializing_if = "is_zero")]
    pub created: usize,
    /// How many were updated.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated: usize,
    /// How many were deleted.
    #[serde(skip_serializing_if = "is_zero")]
    pub deleted: usize,
    /// The conditions that were not met: `activation`, `reconcilePrecondition`, `readyPostcondition`, `deletePostcondition`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
    /// Why it failed: one line of at most 256 bytes, without the content of Secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The last walk of a primary's workflows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The primary.
    pub primary: ObjectRef,
    /// How long ago it ended.
    pub ago: Duration,
    /// The workflows, as a JSON array of [`Walked`].
    pub workflows: Box<str>,
}

/// The last walks of a controller's primaries.
#[derive(Default)]
pub struct Walks(Mutex<State>);

#[derive(Default)]
struct State {
    walks: BTreeMap<ObjectRef, Kept>,
    /// The primaries by the order of their runs.
    order: BTreeMap<u64, ObjectRef>,
    next: u64,
    bytes: usize,
}

struct Kept {
    at: Instant,
    order: u64,
    workflows: Box<str>,
}

// === impl Walks ===

impl Walks {
    /// Keeps what the workflows of a run came to that has ended now. Of a run that has walked none, nothing is kept: that of the run before stays.
    pub fn keep(&self, primary: &ObjectRef, results: &HashMap<Option<String>, WorkflowResult>, now: Instant) {
        if results.is_empty() {
            return;
        }
        let mut left = LONGEST;
        let results: BTreeMap<_, _> = results.iter().collect();
        let walked: Vec<_> =
            results.into_iter().map(|(name, result)| walked(name.as_deref(), result, &mut left)).collect();
        // Texts and numbers can always be written.
        let workflows = serde_json::to_string(&walked).unwrap_or_default().into_boxed_str();
        self.0.lock().put(primary, now, workflows);
    }

    /// Returns the first `limit` walks behind a primary, in the order of their names.
    pub fn page(&self, after: Option<&ObjectRef>, limit: usize, now: Instant) -> Vec<Walk> {
        let state = self.0.lock();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = state.walks.range((begin, Bound::Unbounded)).take(limit);
        rest.map(|(primary, kept)| kept.shown(primary, now)).collect()
    }

    /// Returns the last walk of a primary; `None` if there was none, or it is forgotten.
    pub fn of(&self, primary: &ObjectRef, now: Instant) -> Option<Walk> {
        Some(self.0.lock().walks.get(primary)?.shown(primary, now))
    }

    /// Returns the number of primaries whose last walk is kept.
    pub(super) fn len(&self) -> usize {
        self.0.lock().walks.len()
    }

    /// Forgets a primary.
    pub fn forget(&self, primary: &ObjectRef) {
        self.0.lock().remove(primary);
    }

    /// Forgets all primaries for which `keep` returns false.
    pub fn retain(&self, keep: impl Fn(&ObjectRef) -> bool) {
        let mut state = self.0.lock();
        let gone: Vec<_> = state.walks.keys().filter(|primary| !keep(primary)).cloned().collect();
        for primary in gone {
            state.remove(&primary);
        }
    }
}

impl State {
    fn put(&mut self, primary: &ObjectRef, at: Instant, workflows: Box<str>) {
        self.remove(primary);
        let order = self.next;
        self.next += 1;
        self.bytes += size(primary, &workflows);
        self.order.insert(order, primary.clone());
        self.walks.insert(primary.clone(), Kept { at, order, workflows });
        while self.bytes > MOST
            && let Some((_, oldest)) = self.order.first_key_value().map(|(order, oldest)| (*order, oldest.clone()))
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, primary: &ObjectRef) {
        if let Some(Kept { order, workflows, .. }) = self.walks.remove(primary) {
            self.order.remove(&order);
            self.bytes -= size(primary, &workflows);
        }
    }
}

impl Kept {
    fn shown(&self, primary: &ObjectRef, now: Instant) -> Walk {
        let ago = now.saturating_duration_since(self.at);
        Walk { primary: primary.clone(), ago, workflows: self.workflows.clone() }
    }
}

fn size(primary: &ObjectRef, workflows: &str) -> usize {
    let name = primary.name.len() + primary.namespace.as_ref().map_or(0, |namespace| namespace.len());
    EACH + 2 * name + workflows.len()
}

fn walked(name: Option<&str>, result: &WorkflowResult, left: &mut usize) -> Walked {
    let WorkflowResult { nodes, complete } = result;
    let mut walked = Walked { workflow: name.map(str::to_owned), complete: *complete, ..Walked::default() };
    for node in nodes {
        let reached = reached(node);
        // The names of fields take some 150 bytes at most.
        let length = 150 + reached.name.len() + reached.failed.as_ref().map_or(0, |failed| 2 * failed.len());
        match left.checked_sub(length).filter(|_| walked.more == 0) {
            Some(rest) => {
                *left = rest;
                walked.nodes.push(reached);
            }
            None => walked.more += 1,
        }
    }
    walked
}

fn reached(node: &NodeResult) -> Reached {
    let count = |wanted: Operation| node.done.iter().filter(|(_, operation)| *operation == wanted).count();
    let unmet = node.conditions.iter().filter(|(_, result)| !result.met).map(|(role, _)| said(*role).to_owned());
    Reached {
        name: node.name.clone(),
        unchanged: count(Operation::Unchanged),
        created: count(Operation::Created),
        updated: count(Operation::Updated),
        deleted: count(Operation::Deleted),
        unmet: unmet.collect(),
        failed: node.failed.as_ref().map(|failed| text::said_within(&failed.message, FAILURE).into_owned()),
    }
}

fn said(role: ConditionRole) -> &'static str {
    match role {
        ConditionRole::Activation => "activation",
        ConditionRole::ReconcilePrecondition => "reconcilePrecondition",
        ConditionRole::ReadyPostcondition => "readyPostcondition",
        ConditionRole::DeletePostcondition => "deletePostcondition",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::guest::{ConditionResult, NodeFailure};

    fn key(name: &str) -> ObjectRef {
        ObjectRef::namespaced("n", name)
    }

    fn result(nodes: Vec<NodeResult>) -> HashMap<Option<String>, WorkflowResult> {
        HashMap::from([(None, WorkflowResult { nodes, complete: false })])
    }

    fn failed(name: &str, message: &str) -> NodeResult {
        let failed = Some(NodeFailure { message: message.to_owned(), refused: None });
        NodeResult { name: name.to_owned(), failed, ..NodeResult::default() }
    }

    #[test]
    fn what_is_kept_is_counts_conditions_that_are_not_met_and_failures_as_short_lines() {
        let walks = Walks::default();
        let conditions = vec![
            (ConditionRole::Activation, ConditionResult { met: true, detail: Some("1".to_owned()) }),
            (ConditionRole::ReadyPostcondition, ConditionResult { met: false, detail: Some("\"why\"".to_owned()) }),
        ];
        let done = vec![("a".to_owned(), Operation::Created), ("b".to_owned(), Operation::Created)];
        let many = NodeResult { name: "many".to_owned(), done, conditions, ..NodeResult::default() };
        let now = Instant::now();
        walks.keep(&key("p"), &result(vec![many, failed("broken", &format!("a\n{}", "x".repeat(500)))]), now);
        walks.keep(&key("p"), &HashMap::new(), now);
        let walk = walks.of(&key("p"), now + Duration::from_secs(2)).unwrap();
        let told: Value = serde_json::from_str(&walk.workflows).unwrap();
        let nodes = &told[0]["nodes"];
        assert_eq!(walk.ago, Duration::from_secs(2));
        assert_eq!(nodes[0], json!({ "name": "many", "created": 2, "unmet": ["readyPostcondition"] }));
        let why = nodes[1]["failed"].as_str().unwrap();
        assert!(why.starts_with(r"a\nxx") && why.len() <= FAILURE, "{why}");
    }

    #[test]
    fn those_go_first_whose_run_is_longest_ago_and_one_is_no_longer_than_it_may_be() {
        let walks = Walks::default();
        let now = Instant::now();
        let many: Vec<_> = (0..1000).map(|number| failed(&format!("node-{number}"), &"x".repeat(300))).collect();
        for number in 0..100 {
            walks.keep(&key(&format!("p{number:02}")), &result(many.clone()), now);
        }
        let state = walks.0.lock();
        assert!(state.bytes <= MOST && state.bytes > MOST / 2, "{}", state.bytes);
        assert_eq!(state.bytes, state.walks.iter().map(|(key, kept)| size(key, &kept.workflows)).sum::<usize>());
        assert_eq!(state.order.len(), state.walks.len());
        let longest = state.walks.values().map(|kept| kept.workflows.len()).max();
        assert!(longest.is_some_and(|longest| longest <= LONGEST), "{longest:?}");
        drop(state);
        assert_eq!((walks.of(&key("p00"), now), walks.of(&key("p99"), now).is_some()), (None, true));
        let told: Vec<Walked> = serde_json::from_str(&walks.of(&key("p99"), now).unwrap().workflows).unwrap();
        assert_eq!(told[0].nodes.len() + told[0].more, 1000);
    }

    #[test]
    fn a_page_goes_on_behind_the_one_before_and_what_is_gone_is_forgotten() {
        let walks = Walks::default();
        let now = Instant::now();
        for name in ["c", "a", "b"] {
            walks.keep(&key(name), &result(vec![]), now);
        }
        let names = |walks: Vec<Walk>| walks.iter().map(|walk| walk.primary.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(walks.page(None, 2, now)), ["a", "b"]);
        assert_eq!(names(walks.page(Some(&key("b")), 2, now)), ["c"]);
        walks.retain(|key| &*key.name != "a");
        walks.forget(&key("c"));
        assert_eq!(names(walks.page(None, 9, now)), ["b"]);
    }
}
