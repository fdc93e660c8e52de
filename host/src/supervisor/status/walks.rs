//! Shows what the workflows of primaries came to in their last runs, for `/debug/workflows` and `capstan graph --object`.

use capstan_core::object::ObjectRef;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Status, place};
use crate::part::Part;

/// The last walks of some primaries.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Walks {
    /// One for each primary, by controller and name.
    pub primaries: Vec<Row>,
    /// What to ask for the rest with.
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

/// The last walk of a primary's workflows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The controller.
    pub controller: String,
    /// The primary: `namespace/name`.
    pub primary: String,
    /// How long ago the run ended.
    pub seconds_ago: u64,
    /// The workflows, each as [`Walked`](capstan_core::reconciler::verdicts::Walked).
    pub workflows: Box<RawValue>,
}

impl Status {
    /// Returns the last walks of a part of all primaries, or of those alone with this name, of whatever kind: `namespace/name`.
    pub fn walks(&self, part: &Part, object: Option<&str>) -> Walks {
        let now = Instant::now();
        let after = part.after.as_deref().and_then(place);
        let wanted = object.map(key);
        let mut walks = Walks::default();
        for handle in self.controllers() {
            let name = handle.name();
            if after.as_ref().is_some_and(|(controller, _)| name < *controller) {
                continue;
            }
            let behind = after.as_ref().filter(|(controller, _)| *controller == name).map(|(_, key)| key);
            let left = part.limit - walks.primaries.len();
            let mut found = match &wanted {
                Some(key) => handle.walks().of(key, now).into_iter().collect(),
                None => handle.walks().page(behind, left.saturating_add(1), now),
            };
            let more = found.len() > left;
            found.truncate(left);
            walks.primaries.extend(found.into_iter().filter_map(|walk| {
                let workflows = RawValue::from_string(walk.workflows.into()).ok()?;
                let (controller, primary) = (name.to_owned(), walk.primary.to_string());
                Some(Row { controller, primary, seconds_ago: walk.ago.as_secs(), workflows })
            }));
            if more {
                walks.next = walks.primaries.last().map(Row::place);
                break;
            }
        }
        walks
    }
}

impl Row {
    /// Returns its place among all, as `continue` has it.
    fn place(&self) -> String {
        let ObjectRef { namespace, name } = key(&self.primary);
        format!("{}/{}/{name}", self.controller, namespace.as_deref().unwrap_or_default())
    }
}

/// Returns the name that a text says, with the namespace before it if there is one.
fn key(text: &str) -> ObjectRef {
    let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
    ObjectRef { namespace: namespace.map(Into::into), name: name.into() }
}
