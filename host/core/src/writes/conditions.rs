//! Leaves the standard conditions of primaries as they are in the statuses that a component writes (SC-3).

use serde_json::{Map, Value};

use super::context::WriteContext;
use super::request::{Body, Request};
use crate::conditions;
use crate::guest::{CallError, CallReason};

/// Changes a write of a primary's status so that it neither takes nor changes the conditions that are the daemon's, as the object
/// `actual` has them. A JSON patch is sent as it is: what it takes is put back once the run ends.
pub(super) fn leave(
    context: &WriteContext<'_>,
    request: &mut Request,
    actual: Option<&Value>,
) -> Result<(), CallError> {
    let status = request.target.subresource.as_deref() == Some("status");
    if !context.conditions || !status || request.target.gvk != context.primaries.spec().gvk {
        return Ok(());
    }
    let before = actual.and_then(|actual| actual.pointer("/status/conditions")).unwrap_or(&Value::Null);
    let budget = &mut context.budget.lock();
    let done = match &mut request.verb {
        Body::Apply(tree) | Body::ForceApply(tree) => match tree.get_mut("status") {
            Some(status) => conditions::without_ours(status, budget),
            None => Ok(()),
        },
        Body::Update(Value::Object(tree)) | Body::Edit(Value::Object(tree)) => {
            conditions::with_ours(of(tree), before, budget)
        }
        Body::MergePatch(Value::Object(patch)) if patch.get("status").is_some_and(has_list) => {
            conditions::with_ours(of(patch), before, budget)
        }
        Body::Create(_) | Body::Update(_) | Body::Edit(_) | Body::MergePatch(_) | Body::JsonPatch(_) => Ok(()),
    };
    done.map_err(|error| CallError::new(CallReason::Exhausted, format!("the conditions of the status: {error}")))
}

fn of(tree: &mut Map<String, Value>) -> &mut Value {
    tree.entry("status").or_insert(Value::Null)
}

/// Whether a patch of the status replaces the list of conditions, or removes it.
fn has_list(status: &Value) -> bool {
    status.get("conditions").is_some_and(|list| list.is_array() || list.is_null())
}
