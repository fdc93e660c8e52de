//! Whether a component may send a write: by its grants, and by what becomes of the object.

use serde_json::Value;

use super::context::{WriteContext, cached};
use super::request::{Body, Request, invalid};
use crate::cluster::Target;
use crate::guest::{CallError, CallReason, ObjectTarget};
use crate::manifest::Permission;
use crate::object::Object;
use crate::permission::ties::{self, Before, Effect, Manner};

/// Subresources that nobody permits a component.
const DOORS: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Whether the component may send this, as far as the document says: by its grants, and by what becomes of the object.
pub(super) fn check_permission(
    context: &WriteContext<'_>,
    request: &mut Request,
    primary: &Object,
) -> Result<(), CallError> {
    let Request { target, verb, .. } = &mut *request;
    let Target { gvk, key, subresource } = &*target;
    context.permissions.permit(verb.permission(), gvk, key)?;
    // These are doors to somewhere else, or hand out what opens some, and nothing of the object.
    if let Some(name) = subresource.as_deref()
        && DOORS.contains(&name)
    {
        let message = format!("{gvk} {key}: components can't write the subresource {name:?}");
        return Err(CallError::new(CallReason::Denied, message));
    }
    // These end an object, by whatever verb they are written.
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

/// Returns what a write does to owner references and finalizers, as far as the document says, and takes out of it what only the
/// API server may say.
fn effect(context: &WriteContext<'_>, target: &Target, verb: &mut Body, primary: &Object) -> Result<Effect, CallError> {
    let Target { gvk, key, subresource } = target;
    let writer = ties::Writer { primary, primary_gvk: &context.primaries.spec().gvk, finalizer: context.finalizer };
    // Not what the component says that it is like.
    let known = || {
        let target = ObjectTarget { gvk: gvk.clone(), key: key.clone() };
        let known = cached(context, primary, &target);
        known.and_then(|object| object.tree(&mut context.budget.lock()).ok())
    };
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
            // What another subresource is given is no object of the kind.
            let manner = match subresource.as_deref() {
                None | Some("status") => Manner::Whole,
                Some(_) => Manner::Part,
            };
            let known = known();
            // What was looked at is what is replaced.
            if manner == Manner::Whole && context.permissions.permit(Permission::Delete, gvk, key).is_err() {
                only_upon(tree, known.as_ref());
            }
            of_document(tree, known.as_ref(), manner)
        }
        // Looked at once it is known what is sent.
        Body::Edit(_) => Effect::Harmless,
        Body::JsonPatch(patch) => ties::of_patch(patch).map_err(invalid)?,
        Body::MergePatch(patch) => ties::of_merge_patch(patch),
    })
}

/// Lets a document that says no version replace this one alone.
fn only_upon(document: &mut Value, known: Option<&Value>) {
    let version = known.and_then(|known| known.pointer("/metadata/resourceVersion"));
    let metadata = document.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(version), Some(metadata)) = (version, metadata) {
        let said = metadata.entry("resourceVersion");
        said.or_insert_with(|| version.clone());
    }
}

/// Whether what a write does to owner references and finalizers is permitted: it can come to a deletion, or keep one from
/// happening.
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
