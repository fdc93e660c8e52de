//! Decides whether a write would change anything, and what is sent for it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::context::{WriteContext, sources};
use super::grant::{may_be_marked, permit_effect};
use super::reduced::check_edit;
use super::request::{Body, Request, invalid, version_path};
use crate::budget::Budget;
use crate::cluster::{Target, Verb, Write};
use crate::dependent::managed_fields::Part;
use crate::dependent::{self, diff, managed_fields, ownership};
use crate::guest::{CallError, CallReason, Comparison, MatchResult, WriteMode};
use crate::manifest::GenericMatching;
use crate::object::Object;
use crate::patch::{self, Operation, Patch};
use crate::permission::ties;

/// Returns true if an apply of `document` would change nothing: our share of the object, or of its subresource,
/// equals it.
pub fn is_applied(
    actual: &Object,
    document: &Value,
    manager: &str,
    subresource: Option<&str>,
    budget: &mut Budget,
) -> bool {
    let Some(part) = part(subresource).filter(|_| actual.fields().has_part(subresource)) else {
        return false;
    };
    let verdict = dependent::compare_applied(actual, document, manager, part, budget);
    matches!(verdict, Ok(MatchResult::Matches))
}

/// Returns the part of an object that a subresource stands for; `None` if it is not one that is compared.
fn part(subresource: Option<&str>) -> Option<Part> {
    match subresource {
        None => Some(Part::Object),
        Some("status") => Some(Part::Status),
        Some(_) => None,
    }
}

/// Returns the same as [`is_applied`], with our share of `owned` and the body `actual`.
fn is_applied_in(
    context: &WriteContext<'_>,
    owned: &Object,
    actual: &Value,
    desired: &Value,
    subresource: Option<&str>,
) -> bool {
    let Some(part) = part(subresource) else {
        return false;
    };
    let Ok(share) = dependent::share(owned, context.manager, part) else {
        return false;
    };
    let fields = share.map(|share| &*share.fields);
    let ignore: &[&str] = &[];
    let question = managed_fields::Comparison { fields, actual, desired, part, ignore };
    let verdict = managed_fields::compare(&question, &mut context.budget.lock());
    matches!(verdict, Ok(MatchResult::Matches))
}

pub(super) fn matches(
    context: &WriteContext<'_>,
    request: &Request,
    by: Comparison,
    cached: Option<&Object>,
    actual: &Value,
) -> bool {
    let led_to = match &request.verb {
        Body::Create(_) => return false,
        Body::Apply(tree) | Body::ForceApply(tree) | Body::Update(tree) | Body::Edit(tree) => Cow::Borrowed(tree),
        // A patch that can't be applied here within bounds is left to the API server, which has bounds of its own.
        Body::JsonPatch(patch) => match patch.apply(actual.clone(), &mut context.budget.lock()) {
            Ok(tree) => Cow::Owned(tree),
            Err(_) => return false,
        },
        Body::MergePatch(patch) => {
            let mut tree = actual.clone();
            if patch::merge(&mut tree, patch, &mut context.budget.lock()).is_err() {
                return false;
            }
            Cow::Owned(tree)
        }
    };
    let desired = &*led_to;
    let verdict = match by {
        Comparison::Applied => {
            let subresource = request.target.subresource.as_deref();
            return cached.is_some_and(|object| is_applied_in(context, object, actual, desired, subresource));
        }
        Comparison::StatusOnly => {
            let ignore: &[&str] = &[];
            diff::compare_status(actual, desired, ignore, &mut context.budget.lock())
        }
        Comparison::Generic => {
            let flags = GenericMatching::default();
            diff::compare(actual, desired, &flags, &mut context.budget.lock())
        }
        Comparison::Equality | Comparison::ByVerb => return actual == desired,
    };
    verdict == MatchResult::Matches
}

/// Returns true if the object that a write concerns is the primary of the run, or belongs to it: by uid, or because
/// it is mapped to it and we have applied it before. On such an object, fields of other managers cause no conflict.
pub(super) fn is_ours(context: &WriteContext<'_>, target: &Target, primary: &Object) -> bool {
    if target.gvk == context.primaries.spec().gvk && target.key == *primary.key() {
        return true;
    }
    let seen = sources(context, &target.gvk);
    seen.into_iter().any(|source| {
        source.get(&target.key).is_some_and(|object| {
            // Several shares of ours are an error elsewhere; here they, too, mean that it was applied.
            let share = || dependent::share(&object, context.manager, Part::Object);
            let applied = || !matches!(share(), Ok(None));
            ownership::is_for(&object, &primary.header().uid) || (source.relates(&object, primary.key()) && applied())
        })
    })
}

/// Returns the write to send; `None` for an edit that changes nothing. An object that is `ours` is applied with
/// force.
pub(super) fn compose(
    context: &WriteContext<'_>,
    primary: &Object,
    request: &Request,
    actual: Option<&Value>,
    ours: bool,
) -> Result<Option<Write>, CallError> {
    let manager = Arc::clone(context.manager);
    let verb = match &request.verb {
        Body::Create(tree) => Verb::Create { body: tree.to_string(), manager },
        Body::Apply(tree) | Body::ForceApply(tree) if request.only_if_new => {
            Verb::Apply { body: dependent::with_first_version(tree), manager, force: false }
        }
        Body::Apply(tree) | Body::ForceApply(tree) => {
            Verb::Apply { body: tree.to_string(), manager, force: ours || matches!(request.verb, Body::ForceApply(_)) }
        }
        Body::Update(tree) => Verb::Replace { body: tree.to_string(), manager },
        Body::MergePatch(tree) => Verb::MergePatch { body: tree.to_string(), manager },
        Body::JsonPatch(patch) => Verb::JsonPatch { patch: patch.clone(), manager },
        Body::Edit(tree) => {
            let missing = || {
                CallError::new(CallReason::Missing, format!("{} is in no cache: nothing to edit", request.target.key))
            };
            let actual = actual.ok_or_else(missing)?;
            let mut patch = patch::diff(actual, tree, &mut context.budget.lock())
                .map_err(|e| CallError::new(CallReason::Exhausted, format!("the edit: {e}")))?;
            ties::clean_patch(&mut patch);
            let effect =
                ties::of_patch(&patch, || may_be_marked(context, primary, &request.target)).map_err(invalid)?;
            permit_effect(context, &request.target, effect)?;
            check_edit(context, &request.target, &patch)?;
            if patch.0.is_empty() {
                return Ok(None);
            }
            if request.mode == WriteMode::Optimistic {
                pin(&mut patch, tree);
            }
            Verb::JsonPatch { patch, manager }
        }
    };
    Ok(Some(Write::new(request.target.clone(), verb, context.validation)))
}

/// Adds a test to a patch, so that it fails unless the object has the version that the document names.
fn pin(patch: &mut Patch, document: &Value) {
    let path = version_path();
    patch.0.retain(|step| step.path() != &path);
    let value = document.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    patch.0.insert(0, Operation::Test { path, value });
}
