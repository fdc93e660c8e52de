//! Decides how a write that a guest asks for is carried out: whether it is needed, and what its event causes (RO rules).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{self, Deletion, Reason, Target, Verb, Write};
use crate::dependent::managed_fields::Part;
use crate::dependent::{self, diff, managed_fields};
use crate::guest::{
    CallError, CallReason, CompareQuestion, Comparison, MatchResult, ObjectTarget, WriteMode, WriteRequest,
};
use crate::manifest::{GenericMatching, Permission};
use crate::object::{Gvk, Object, Scope};
use crate::source::{Source, Spec, Within};

mod compose;
mod conditions;
mod context;
mod grant;
mod reduced;
mod request;

pub use compose::is_applied;
use compose::{compose, is_ours, matches};
pub use context::{Recalls, WriteContext};
use context::{cached, sources};
use grant::check_permission;
pub use reduced::torn;
use reduced::{can_compare, check_whole};
use request::{Body, Request, invalid, named, parsed, read};

/// Carries out a write and returns the object as it is afterwards, or the cached object if nothing would change
/// (`RO-5`).
///
/// # Errors
/// As [`CallReason`] says.
pub async fn write(context: &WriteContext<'_>, primary: &Object, request: WriteRequest) -> Result<String, CallError> {
    let mut request = read(request, &mut context.budget.lock())?;
    check_target(context, &request.target)?;
    check_permission(context, &mut request, primary)?;
    check_whole(context, &request)?;
    let source = source(context, &request, primary)?;
    let source = source.as_ref();
    if let Some(source) = source.filter(|_| !matches!(request.verb, Body::Create(_))) {
        let known = source.known(Within::Object(&request.target.key));
        known.map_err(|doubt| {
            if let Some(run) = context.run {
                run.doubts(&doubt);
            }
            CallError::new(CallReason::Unreachable, doubt.to_string())
        })?;
    }
    let cached = match source {
        Some(source) => recalled(context, source, &request).await?,
        None => None,
    };
    let actual = actual(context, primary, &mut request, cached)?;
    let compare = request.compare.filter(|_| can_compare(&request, source.map(|source| &**source)));
    if let (Some(by), Some((cached, tree))) = (compare, &actual)
        && matches(context, &request, by, cached.as_ref(), tree)
    {
        return Ok(unchanged(context, primary, &request, cached.as_ref(), tree));
    }
    let ours = matches!(request.verb, Body::Apply(_)) && is_ours(context, &request.target, primary);
    let Some(write) = compose(context, primary, &request, actual.as_ref().map(|(_, tree)| tree), ours)? else {
        let unchanged = |(cached, tree): &Actual| unchanged(context, primary, &request, cached.as_ref(), tree);
        return Ok(actual.as_ref().map_or_else(String::new, unchanged));
    };
    let filtered = matches!(request.mode, WriteMode::MatchAndFilter | WriteMode::Optimistic | WriteMode::ForceFilter);
    let key = &request.target.key;
    let window = source
        .filter(|source| filtered && context.filters(source, key, primary))
        .map(|source| source.begin(key.clone(), |triggers| (context.tell)(triggers)));
    let answer = context.cluster.write(write).await;
    let answer = answer.map_err(|error| refused(told(context, primary, &request, error)))?;
    let nothing = || CallError::new(CallReason::Other, "the API server answered without an object");
    let answer = answer.ok_or_else(nothing)?;
    match (window, source) {
        (Some(window), _) => window.answered(answer.clone(), context.manager),
        (None, Some(source)) => source.put(answer.clone()),
        // Mode `plain` and subresources other than `status` have no source. SC-3: what it has taken of conditions is seen once the run ends.
        (None, None) if conditions::may_be_taken(context, &request) => context.primaries.put(answer.clone()),
        (None, None) if is_apart(&request) => {}
        (None, None) => context.primaries.wrote_unread(&request.target.gvk, &answer),
    }
    if source.is_some() && request.target.gvk == context.primaries.spec().gvk {
        context.primaries.put(answer.clone());
    }
    let answer = match source {
        Some(source) => source.cut(answer),
        None => answer,
    };
    let gvk = &request.target.gvk;
    let is_shown = matches!(request.verb, Body::Create(_)) || context.may_see(primary, gvk, &answer);
    Ok(if is_shown { answer.json().to_owned() } else { name_only(gvk, &answer) })
}

/// Returns the answer to a write that would change nothing: the object that the document was compared with, or only
/// its name if the component may not see more.
fn unchanged(
    context: &WriteContext<'_>,
    primary: &Object,
    request: &Request,
    cached: Option<&Object>,
    tree: &Value,
) -> String {
    let gvk = &request.target.gvk;
    match cached {
        Some(object) if context.may_see(primary, gvk, object) => object.json().to_owned(),
        Some(object) => name_only(gvk, object),
        // The document that the component itself has given.
        None => tree.to_string(),
    }
}

/// Returns kind, name, uid, version and generation of an object as JSON, without its contents.
fn name_only(gvk: &Gvk, object: &Object) -> String {
    let header = object.header();
    let metadata = json!({
        "name": &*header.key.name,
        "namespace": header.key.namespace.as_deref(),
        "uid": &*header.uid,
        "resourceVersion": header.version.to_string(),
        "generation": header.generation,
    });
    let mut named = json!({ "apiVersion": gvk.api_version(), "kind": &*gvk.kind, "metadata": metadata });
    if let Some(Value::Object(metadata)) = named.get_mut("metadata") {
        metadata.retain(|_, value| !value.is_null());
    }
    named.to_string()
}

/// Deletes an object.
///
/// # Errors
/// As [`CallReason`] says. An object that does not exist is not an error.
pub async fn remove(
    context: &WriteContext<'_>,
    primary: &Object,
    target: ObjectTarget,
    deletion: Deletion,
) -> Result<(), CallError> {
    let target = Target::object(target.gvk, target.key);
    check_target(context, &target)?;
    context.permissions.permit(Permission::Delete, &target.gvk, &target.key)?;
    let left = context.cluster.write(Write::own(target.clone(), Verb::Delete(deletion))).await;
    let left = left.map_err(|error| refused(discreet(context, primary, &target, error)))?;
    if let Some(left) = left {
        for source in sources(context, &target.gvk) {
            source.put(left.clone());
        }
    }
    Ok(())
}

/// Compares two documents of the component.
///
/// # Errors
/// `invalid` if a document is not JSON; `missing` for [`Comparison::Applied`] if the object is in no cache, because
/// then our share of it is not known.
pub fn compare(
    context: &WriteContext<'_>,
    primary: &Object,
    question: &CompareQuestion,
) -> Result<MatchResult, CallError> {
    let CompareQuestion { by, actual, desired, ignore } = question;
    let budget = &mut *context.budget.lock();
    let (actual, desired) = (parsed(actual, "actual", budget)?, parsed(desired, "desired", budget)?);
    let ignored = GenericMatching { ignore: ignore.iter().map(|p| p.as_str().into()).collect(), ..Default::default() };
    match by {
        Comparison::ByVerb => Err(CallError::new(CallReason::Invalid, "by-verb needs a write; name a comparison")),
        Comparison::Generic => Ok(diff::compare(&actual, &desired, &ignored, budget)),
        Comparison::StatusOnly => Ok(diff::compare_status(&actual, &desired, ignore, budget)),
        Comparison::Equality => Ok(diff::compare_all(&actual, &desired, ignore, budget)),
        Comparison::Applied => {
            let target = named(&desired)?;
            let cached =
                cached(context, primary, &target).filter(|object| context.may_see(primary, &target.gvk, object));
            let missing = |why: &str| {
                let message = format!("{} {} is in no cache{why}", target.gvk, target.key);
                CallError::new(CallReason::Missing, message)
            };
            let cached = cached.ok_or_else(|| missing(": nobody knows which fields are ours"))?;
            if !cached.fields().has_part(None) {
                return Err(missing(" with all its fields (`keep`, `drop`): nobody knows whether it differs"));
            }
            let part = Part::Object;
            let share = dependent::share(&cached, context.manager, part)
                .map_err(|e| CallError::new(CallReason::Other, e.to_string()))?;
            let fields = share.map(|share| &*share.fields);
            let question = managed_fields::Comparison { fields, actual: &actual, desired: &desired, part, ignore };
            managed_fields::compare(&question, budget).map_err(|e| CallError::new(CallReason::Other, e.to_string()))
        }
    }
}

/// Returns why a write was refused, as its component may be told.
fn told(context: &WriteContext<'_>, primary: &Object, request: &Request, error: cluster::Error) -> cluster::Error {
    // What is made is its own, but not where that is a subresource of what is there.
    let own = matches!(request.verb, Body::Create(_)) && request.target.subresource.is_none();
    if own { error } else { discreet(context, primary, &request.target, error) }
}

/// Returns an error without the API server's message if the component may not see the object: the message quotes the
/// rejected document, for a patch also the object before it, and where admission refuses it whatever that likes.
fn discreet(context: &WriteContext<'_>, primary: &Object, target: &Target, error: cluster::Error) -> cluster::Error {
    let Target { gvk, key, .. } = target;
    let sees = match cached(context, primary, &ObjectTarget { gvk: gvk.clone(), key: key.clone() }) {
        Some(object) => context.may_see(primary, gvk, &object),
        None => context.permissions.may_read(gvk, key.namespace.as_deref()),
    };
    if sees { error } else { error.unseen(gvk, key) }
}

/// Maps an API error to the contract's [`CallError`].
pub fn refused(error: cluster::Error) -> CallError {
    let reason = match error.reason {
        Reason::Missing | Reason::UnknownKind => CallReason::Missing,
        Reason::Conflict => CallReason::Conflict,
        Reason::Forbidden | Reason::Rejected | Reason::Busy => CallReason::Rejected,
        Reason::Unreachable => CallReason::Unreachable,
        Reason::Unusable => CallReason::Other,
        Reason::Invalid => CallReason::Invalid,
    };
    CallError { reason, code: error.code, message: error.message }
}

fn check_target(context: &WriteContext<'_>, target: &Target) -> Result<(), CallError> {
    if let Some((what, text)) = target.misfit() {
        return Err(invalid(format!("{what} {text:?} is not one")));
    }
    match (context.cluster.scope(&target.gvk), &target.key.namespace) {
        (Some(Scope::Namespaced), None) => Err(invalid(format!("{} lives in a namespace: name it", target.gvk))),
        (Some(Scope::Cluster), Some(_)) => Err(invalid(format!("{} lives in no namespace: leave it out", target.gvk))),
        _ => Ok(()),
    }
}

/// Returns the source that a write concerns (`RO-2`); `None` in mode `plain`, and while nothing is watched for that source.
fn source(context: &WriteContext<'_>, request: &Request, primary: &Object) -> Result<Option<Arc<Source>>, CallError> {
    // Other subresources answer with another kind, which does not belong into the caches.
    if is_apart(request) {
        return Ok(None);
    }
    if let Some(name) = &request.options.source {
        let found = context.secondaries.get(&**name).cloned();
        let found = found.or_else(|| context.registered.watched().get(&**name).cloned());
        let found = found.filter(|source| source.spec().gvk == request.target.gvk);
        if let Some(source) = found.as_ref().filter(|source| source.is_apart_from(context.primaries)) {
            return Err(elsewhere(source));
        }
        let missing =
            || CallError::new(CallReason::Missing, format!("no source {name:?} watches {}", request.target.gvk));
        return found.ok_or_else(missing).map(|source| Some(source).filter(|source| source.watched().is_ok()));
    }
    let key = &request.target.key;
    let mut found = sources(context, &request.target.gvk);
    let declared = !found.is_empty();
    found.retain(|source| source.watched().is_ok());
    if declared && found.is_empty() {
        return Ok(None);
    }
    // If a kind is watched both as primary and as secondary, any other primary counts as a secondary.
    if found.len() > 1 {
        found.retain(|source| context.filters(source, key, primary));
    }
    match found.as_slice() {
        [] => {
            let message = format!("no source watches {}; mode plain writes it all the same", request.target.gvk);
            Err(CallError::new(CallReason::Missing, message))
        }
        [source] => Ok(Some(Arc::clone(source))),
        // The primary of the run belongs to the source of primaries, even if other sources watch the kind.
        [first, ..] if Arc::ptr_eq(first, context.primaries) && key == primary.key() => Ok(Some(Arc::clone(first))),
        several => {
            // One that waits to see an own write says so.
            let waits = |source: &&Arc<Source>| source.waits_for_own_write(key);
            let shows = |source: &&Arc<Source>| source.get(key).is_some();
            Ok(several.iter().find(waits).or_else(|| several.iter().find(shows)).or(several.first()).cloned())
        }
    }
}

/// Returns true if no source has to do with a write.
fn is_apart(request: &Request) -> bool {
    let other = request.target.subresource.as_deref().is_some_and(|name| name != "status");
    request.mode == WriteMode::Plain || other
}

/// Refuses a write by a source of another cluster (`CU-5`).
fn elsewhere(source: &Source) -> CallError {
    let Spec { name, cluster, .. } = source.spec();
    let cluster = cluster.as_deref().unwrap_or("of the daemon");
    let message = format!(
        "source {name} watches the cluster {cluster}, which is only read: what a component writes goes to the cluster of its controller"
    );
    CallError::new(CallReason::Denied, message)
}

/// The cached object, if there is one, and the document to compare with: given, or of the cached object.
type Actual = (Option<Object>, Value);

/// Returns the cached object; from the API server, if the source has forgotten it and it is looked at (`BC-1`).
async fn recalled(context: &WriteContext<'_>, source: &Source, request: &Request) -> Result<Option<Object>, CallError> {
    let cached = source.get(&request.target.key);
    let looked_at = request.compare.is_some() || matches!(request.verb, Body::Edit(_));
    let forgotten = cached.as_ref().is_some_and(|object| looked_at && source.has_forgotten(object));
    match context.run {
        Some(run) if forgotten && request.options.actual.is_none() => run.recall(source, &request.target.key).await,
        Some(_) | None => Ok(cached),
    }
}

/// Returns what there is of the object, and has the write leave alone what of it is the daemon's.
fn actual(
    context: &WriteContext<'_>,
    primary: &Object,
    request: &mut Request,
    cached: Option<Object>,
) -> Result<Option<Actual>, CallError> {
    let tree = match (&request.options.actual, &cached) {
        (Some(text), _) => Some(parsed(text, "actual", &mut context.budget.lock())?),
        (None, Some(object)) => {
            let tree = object.tree(&mut context.budget.lock());
            Some(tree.map_err(|e| CallError::new(CallReason::Exhausted, e.to_string()))?)
        }
        (None, None) => None,
    };
    conditions::leave(context, primary, request, tree.as_ref())?;
    Ok(tree.map(|tree| (cached, tree)))
}
