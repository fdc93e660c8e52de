//! Leaves the standard conditions of primaries as they are in the statuses that a component writes (SC-3).

use std::fmt::Display;

use serde_json::{Map, Value};

use super::context::{WriteContext, cached};
use super::request::{Body, Request};
use crate::cluster::Target;
use crate::conditions;
use crate::guest::{CallError, CallReason, ObjectTarget};
use crate::object::Object;

/// Changes a write of a primary's status so that it neither takes nor changes the conditions that are the daemon's, as the object
/// has them: `actual`, if that is what is known of it, and not what the component says. A JSON patch is sent as it is: what it takes is put back once the run ends.
pub(super) fn leave(
    context: &WriteContext<'_>,
    primary: &Object,
    request: &mut Request,
    actual: Option<&Value>,
) -> Result<(), CallError> {
    if !may_be_taken(context, request) {
        return Ok(());
    }
    let Target { gvk, key, .. } = &request.target;
    let known = match actual.filter(|_| request.options.actual.is_none()) {
        Some(_) => None,
        None => cached(context, primary, &ObjectTarget { gvk: gvk.clone(), key: key.clone() }),
    };
    let budget = &mut context.budget.lock();
    let known = known.map(|known| known.tree(budget)).transpose().map_err(costly)?;
    let before =
        known.as_ref().or(actual).and_then(|known| known.pointer("/status/conditions")).unwrap_or(&Value::Null);
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
    done.map_err(costly)
}

/// Whether a write is one of a primary's status, whose conditions are the daemon's.
pub(super) fn may_be_taken(context: &WriteContext<'_>, request: &Request) -> bool {
    let Target { gvk, subresource, .. } = &request.target;
    context.conditions && subresource.as_deref() == Some("status") && *gvk == context.primaries.spec().gvk
}

fn costly(error: impl Display) -> CallError {
    CallError::new(CallReason::Exhausted, format!("the conditions of the status: {error}"))
}

fn of(tree: &mut Map<String, Value>) -> &mut Value {
    tree.entry("status").or_insert(Value::Null)
}

/// Whether a patch of the status replaces the list of conditions, or removes it.
fn has_list(status: &Value) -> bool {
    status.get("conditions").is_some_and(|list| list.is_array() || list.is_null())
}
