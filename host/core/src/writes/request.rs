//! Reads a write that a component asks for: decides its target, mode and comparison.

use std::sync::Arc;

use serde_json::Value;

use crate::budget::{self, Budget};
use crate::cluster::Target;
use crate::guest::{CallError, CallReason, Comparison, ObjectTarget, WriteMode, WriteOptions, WriteRequest, WriteVerb};
use crate::manifest::Permission;
use crate::object::{Gvk, ObjectRef};
use crate::patch::{self, Operation, Patch};
use crate::permission::ties;

/// Subresources whose documents are of another kind than the object.
const OF_OTHER_KINDS: [&str; 3] = ["binding", "eviction", "scale"];

/// A write after its document has been read.
pub(super) struct Request {
    pub(super) target: Target,
    pub(super) verb: Body,
    pub(super) mode: WriteMode,
    pub(super) compare: Option<Comparison>,
    pub(super) options: WriteOptions,
    /// True if the write has to fail when the object exists.
    pub(super) only_if_new: bool,
}

/// The verb of a write, with its document.
pub(super) enum Body {
    Create(Value),
    Apply(Value),
    ForceApply(Value),
    Update(Value),
    Edit(Value),
    /// Sent as it was parsed here, not as the component wrote it: the API server may read a duplicate name
    /// differently.
    JsonPatch(Patch),
    MergePatch(Value),
}

impl Body {
    /// Returns the permission that the write needs.
    pub(super) fn permission(&self) -> Permission {
        match self {
            Self::Create(_) => Permission::Create,
            Self::Apply(_) | Self::ForceApply(_) => Permission::Apply,
            Self::Update(_) => Permission::Update,
            Self::Edit(_) | Self::JsonPatch(_) | Self::MergePatch(_) => Permission::Patch,
        }
    }

    fn carries_version(&self) -> bool {
        match self {
            Self::Create(tree)
            | Self::Apply(tree)
            | Self::ForceApply(tree)
            | Self::Update(tree)
            | Self::Edit(tree)
            | Self::MergePatch(tree) => tree.pointer("/metadata/resourceVersion").is_some_and(Value::is_string),
            Self::JsonPatch(patch) => {
                patch.0.iter().any(|step| matches!(step, Operation::Test { path, .. } if *path == version_path()))
            }
        }
    }
}

pub(super) fn read(request: WriteRequest, budget: &mut Budget) -> Result<Request, CallError> {
    let WriteRequest { verb, options } = request;
    let (target, verb) = match verb {
        WriteVerb::Create(text) => document(&text, budget).map(|(target, tree)| (target, Body::Create(tree)))?,
        WriteVerb::Apply(text) => document(&text, budget).map(|(target, tree)| (target, Body::Apply(tree)))?,
        WriteVerb::ForceApply(text) => {
            document(&text, budget).map(|(target, tree)| (target, Body::ForceApply(tree)))?
        }
        WriteVerb::Update(text) => document(&text, budget).map(|(target, tree)| (target, Body::Update(tree)))?,
        WriteVerb::Edit(text) => document(&text, budget).map(|(target, tree)| (target, Body::Edit(tree)))?,
        WriteVerb::JsonPatch(target, text) => {
            let patch = Patch::read(&text, budget).map_err(|e| invalid(e.to_string()))?;
            (target, Body::JsonPatch(patch))
        }
        WriteVerb::MergePatch(target, text) => {
            let mut patch = parsed(&text, "the patch", budget)?;
            ties::clean(&mut patch);
            (target, Body::MergePatch(patch))
        }
    };
    let subresource: Option<Arc<str>> = options.subresource.as_deref().map(Into::into);
    let is_patch = matches!(verb, Body::JsonPatch(_) | Body::MergePatch(_));
    if let Some(name) = subresource.as_deref().filter(|name| !is_patch && OF_OTHER_KINDS.contains(name)) {
        let message = format!(
            "the document of the subresource {name} is of another kind, so that it does not say whose it is; expected `json-patch` or `merge-patch`"
        );
        return Err(invalid(message));
    }
    let target = Target { gvk: target.gvk, key: target.key, subresource };
    let (mode, compare) = treatment(&verb, &target, &options)?;
    if mode == WriteMode::Optimistic && !verb.carries_version() {
        return Err(invalid("mode optimistic needs a resourceVersion in the document, or a test of it in the patch"));
    }
    Ok(Request { target, verb, mode, compare, options, only_if_new: false })
}

/// Returns mode and comparison (`RO-4`, `RO-6`), as asked for or as is usual for the verb.
fn treatment(
    verb: &Body,
    target: &Target,
    options: &WriteOptions,
) -> Result<(WriteMode, Option<Comparison>), CallError> {
    let create = matches!(verb, Body::Create(_));
    if create && (options.compare_by.is_some() || options.mode == WriteMode::MatchAndFilter) {
        return Err(invalid("there is nothing to compare a creation with"));
    }
    let mode = match (options.mode, verb) {
        (WriteMode::Usual, Body::Create(_)) => WriteMode::ForceFilter,
        (WriteMode::Usual, Body::Update(_)) => WriteMode::Optimistic,
        (WriteMode::Usual, _) => WriteMode::MatchAndFilter,
        (mode, _) => mode,
    };
    let compared = matches!(options.mode, WriteMode::Usual | WriteMode::MatchAndFilter) && !create;
    let compare = options.compare_by.or(compared.then_some(Comparison::ByVerb));
    let status = target.subresource.as_deref() == Some("status");
    let by_verb = match verb {
        Body::Update(_) if status => Comparison::StatusOnly,
        Body::Apply(_) | Body::ForceApply(_) => Comparison::Applied,
        Body::Update(_) => Comparison::Generic,
        // Patches are compared by the object that they would lead to.
        Body::Create(_) | Body::Edit(_) | Body::JsonPatch(_) | Body::MergePatch(_) => Comparison::Equality,
    };
    Ok((mode, compare.map(|by| if by == Comparison::ByVerb { by_verb } else { by })))
}

fn document(text: &str, budget: &mut Budget) -> Result<(ObjectTarget, Value), CallError> {
    let tree = parsed(text, "the object", budget)?;
    Ok((named(&tree)?, tree))
}

/// Returns the object that a document is about.
pub(super) fn named(tree: &Value) -> Result<ObjectTarget, CallError> {
    let text = |pointer: &str| tree.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let needed = |pointer: &str| text(pointer).ok_or_else(|| invalid(format!("the object lacks {pointer}")));
    let gvk = Gvk::parse(needed("/apiVersion")?, needed("/kind")?).map_err(|e| invalid(e.to_string()))?;
    let key =
        ObjectRef { namespace: text("/metadata/namespace").map(Into::into), name: needed("/metadata/name")?.into() };
    Ok(ObjectTarget { gvk, key })
}

pub(super) fn parsed(text: &str, what: &str, budget: &mut Budget) -> Result<Value, CallError> {
    budget.read(text).map_err(|error| match error {
        budget::Error::Json(error) => invalid(format!("{what} is not JSON: {error}")),
        budget::Error::Exceeded(error) => {
            CallError::new(CallReason::Exhausted, format!("{what} is too large: {error}"))
        }
    })
}

pub(super) fn invalid(message: impl AsRef<str>) -> CallError {
    CallError::new(CallReason::Invalid, message)
}

pub(super) fn version_path() -> patch::Path {
    patch::Path::of(["metadata", "resourceVersion"])
}
