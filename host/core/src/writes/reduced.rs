//! Decides which writes can't be sent, or not be spared, because the caches keep only some fields of objects (BC).

use std::sync::Arc;

use super::context::{WriteContext, sources};
use super::request::{Body, Request, invalid};
use crate::cluster::Target;
use crate::guest::CallError;
use crate::object::fields::Fields;
use crate::patch::{Operation, Patch};
use crate::source::Source;

/// Returns the first field that a patch changes and of which a set has not all: what is below would be lost.
pub fn torn(patch: &Patch, fields: &Fields) -> Option<String> {
    let changes = patch.0.iter().filter(|step| !matches!(step, Operation::Test { .. }));
    let mut paths = changes.map(Operation::path);
    let torn = paths.find(|path| !fields.has(path.steps().iter().map(String::as_str)));
    torn.map(ToString::to_string)
}

/// Checks that an update has all fields that it replaces. The component can have the document from any source that may have
/// shown the object.
pub(super) fn check_whole(context: &WriteContext<'_>, request: &Request) -> Result<(), CallError> {
    let Target { gvk, key, subresource } = &request.target;
    let part = subresource.as_deref();
    let of_object = matches!(part, None | Some("status"));
    if !matches!(request.verb, Body::Update(_)) || !of_object {
        return Ok(());
    }
    match reduced(context, &request.target).find(|source| !source.keeps(part)) {
        None => Ok(()),
        Some(source) => Err(invalid(format!(
            "update of {gvk} {key}: source {} does not keep all fields (`keep`, `drop`), and an update would delete the others: use `edit`, `apply` or a patch",
            source.spec().name
        ))),
    }
}

/// Checks that an edit changes nothing of which a source keeps only a part.
pub(super) fn check_edit(context: &WriteContext<'_>, target: &Target, patch: &Patch) -> Result<(), CallError> {
    let torn = reduced(context, target).find_map(|source| {
        let torn = torn(patch, &source.spec().fields)?;
        Some((source, torn))
    });
    match torn {
        None => Ok(()),
        Some((source, path)) => Err(invalid(format!(
            "edit of {} {}: it changes {path}, of which source {} does not keep all (`keep`, `drop`): use `apply` or a patch",
            target.gvk,
            target.key,
            source.spec().name
        ))),
    }
}

/// Returns true if a write may be spared because it would change nothing: what it is compared with is all there. An edit
/// changes only what is.
pub(super) fn can_compare(request: &Request, source: Option<&Source>) -> bool {
    let edit = matches!(request.verb, Body::Edit(_));
    edit || source.is_none_or(|source| source.keeps(request.target.subresource.as_deref()))
}

fn reduced<'a>(context: &WriteContext<'_>, target: &'a Target) -> impl Iterator<Item = Arc<Source>> + use<'a> {
    let all = sources(context, &target.gvk).into_iter();
    all.filter(|source| !source.spec().fields.is_whole() && source.watches(&target.key))
}
