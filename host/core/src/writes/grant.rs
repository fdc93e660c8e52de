//! Decides whether a component may send a write: by its grants, and by what becomes of the object.

use serde_json::Value;

use super::context::{WriteContext, cached};
use super::request::{Body, Request, invalid};
use crate::cluster::Target;
use crate::guest::{CallError, CallReason, ObjectTarget};
use crate::manifest::Permission;
use crate::object::{MARK, Object};
use crate::permission::ties::{self, Before, Effect, Manner};

/// Subresources that a component may never write.
const DOORS: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Checks that the component may send a write, as far as its document says: by its grants, and by what becomes of the
/// object.
pub(super) fn check_permission(
    context: &WriteContext<'_>,
    request: &mut Request,
    primary: &Object,
) -> Result<(), CallError> {
    let Request { target, verb, .. } = &mut *request;
    let Target { gvk, key, subresource } = &*target;
    context.permissions.permit(verb.permission(), gvk, key)?;
    // These subresources open connections or hand out tokens; they are not part of the object.
    if let Some(name) = subresource.as_deref()
        && DOORS.contains(&name)
    {
        let message = format!("{gvk} {key}: components can't write the subresource {name:?}");
        return Err(CallError::new(CallReason::Denied, message));
    }
    // These delete an object, or let its deletion complete, whatever the verb.
    if let Some(name @ ("eviction" | "finalize")) = subresource.as_deref() {
        let effect = Effect::Foreign(format!("{name} lets it go"));
        permit_effect(context, target, effect)?;
    }
    let effect = effect(context, target, verb, primary)?;
    let is_new = effect == Effect::HarmlessIfNew;
    let permitted = permit_effect(context, &request.target, effect);
    request.only_if_new = is_new && permitted.is_err();
    if is_new { Ok(()) } else { permitted }
}

/// Returns the effect of a write on owner references and finalizers, as far as the document says, and removes fields
/// from the document that only the API server may set.
fn effect(context: &WriteContext<'_>, target: &Target, verb: &mut Body, primary: &Object) -> Result<Effect, CallError> {
    let Target { gvk, key, subresource } = target;
    let writer = ties::Writer { primary, primary_gvk: &context.primaries.spec().gvk, finalizer: context.finalizer };
    // The cached object, not the one that the component gives as `actual`.
    let object = || cached(context, primary, &ObjectTarget { gvk: gvk.clone(), key: key.clone() });
    let known = || object().and_then(|object| object.tree(&mut context.budget.lock()).ok());
    let marked = || may_be_marked(context, primary, target);
    let of_document = |tree: &Value, known: Option<&Value>, manner| {
        let before = known.map_or(Before::Unknown, Before::Known);
        ties::of_document(tree, before, manner, key, &writer)
    };
    Ok(match verb {
        Body::Create(tree) => {
            ties::clean(tree);
            ties::of_document(tree, Before::Absent, Manner::Part, key, &writer)
        }
        Body::Apply(tree) | Body::ForceApply(tree) => {
            ties::clean(tree);
            let tied = ties::is_tied(tree);
            let known = tied.then(known).flatten();
            of_document(tree, known.as_ref(), Manner::Part)
        }
        Body::Update(tree) => {
            ties::clean(tree);
            // The body of another subresource is not an object of the kind.
            let manner = match subresource.as_deref() {
                None | Some("status") => Manner::Whole,
                Some(_) => Manner::Part,
            };
            let known = known();
            // Only the version that was checked here may be replaced.
            if manner == Manner::Whole && context.permissions.permit(Permission::Delete, gvk, key).is_err() {
                only_upon(tree, known.as_ref()).map_err(|()| {
                    let message = format!("{gvk} {key}: it is another version than the one that is known here, whose owner references and finalizers are to stay");
                    CallError::new(CallReason::Conflict, message)
                })?;
            }
            of_document(tree, known.as_ref(), manner)
        }
        // Checked in `compose`, where the patch is known.
        Body::Edit(_) => Effect::Harmless,
        Body::JsonPatch(patch) => ties::of_patch(patch, marked).map_err(invalid)?,
        Body::MergePatch(patch) => ties::of_merge_patch(patch, marked),
    })
}

/// Returns true if an object has the daemon's mark, or if nothing is known of it. What the component gives as `actual` does
/// not count.
pub(super) fn may_be_marked(context: &WriteContext<'_>, primary: &Object, target: &Target) -> bool {
    let Target { gvk, key, .. } = target;
    let cached = cached(context, primary, &ObjectTarget { gvk: gvk.clone(), key: key.clone() });
    cached.is_none_or(|object| object.tags().annotations.contains_key(MARK))
}

/// Sets the known object's version in a document that has none, so that it replaces this version only. An error if the document has
/// another one.
fn only_upon(document: &mut Value, known: Option<&Value>) -> Result<(), ()> {
    let version = known.and_then(|known| known.pointer("/metadata/resourceVersion"));
    let metadata = document.get_mut("metadata").and_then(Value::as_object_mut);
    let (Some(version), Some(metadata)) = (version, metadata) else { return Ok(()) };
    let said = metadata.entry("resourceVersion").or_insert(Value::Null);
    if said.as_str().is_none_or(str::is_empty) {
        said.clone_from(version);
    }
    if said == version { Ok(()) } else { Err(()) }
}

/// Checks that the effect of a write on owner references and finalizers is permitted: it can lead to a deletion, or
/// prevent one.
pub(super) fn permit_effect(context: &WriteContext<'_>, target: &Target, effect: Effect) -> Result<(), CallError> {
    let what = match effect {
        Effect::Harmless => return Ok(()),
        Effect::HarmlessIfNew => "it may be there already, and would go with the primary".to_owned(),
        Effect::Foreign(what) => what,
    };
    let Target { gvk, key, .. } = target;
    let permitted = context.permissions.permit(Permission::Delete, gvk, key);
    permitted.map_err(|denied| CallError {
        message: format!("{gvk} {key}: {what}, which takes `delete`: {}", denied.message),
        ..denied
    })
}
