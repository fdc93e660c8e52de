//! Decides how a write that a guest asks for is carried out: whether it is needed, and what its event causes (RO rules).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::budget::{self, Budget};
use crate::cluster::{self, Cluster, Deletion, Reason, Target, Verb, Write};
use crate::dependent::managed_fields::Part;
use crate::dependent::{self, diff, managed_fields};
use crate::guest::{
    CallError, CallReason, CompareQuestion, Comparison, MatchResult, ObjectTarget, WriteMode,
    WriteOptions, WriteRequest, WriteVerb,
};
use crate::manifest::GenericMatching;
use crate::object::{Gvk, Object, ObjectRef, Scope};
use crate::patch::{self, Operation, Patch};
use crate::queue::{self, Queue};
use crate::source::{Notice, Source, What};

/// What writes need to know of a controller.
#[derive(Clone, Copy)]
pub struct Desk<'a> {
    /// The API server.
    pub cluster: &'a dyn Cluster,
    /// The primaries.
    pub primaries: &'a Arc<Source>,
    /// The secondaries.
    pub secondaries: &'a BTreeMap<Arc<str>, Arc<Source>>,
    /// The field manager.
    pub manager: &'a Arc<str>,
    /// Is told of events that were held back.
    pub queue: &'a Queue,
    /// What the run may still spend on documents.
    pub budget: &'a Mutex<Budget>,
}

/// A write after its document has been read.
struct Request {
    target: Target,
    verb: Body,
    mode: WriteMode,
    compare: Option<Comparison>,
    options: WriteOptions,
}

/// What is sent.
enum Body {
    Create(Value),
    Apply(Value),
    Update(Value),
    Edit(Value),
    /// With its text, which is sent as it is.
    JsonPatch(Patch, String),
    MergePatch(Value),
}

/// Carries out a write and returns the object as it is then; or the cached one, if nothing would change (`RO-5`).
///
/// # Errors
/// As [`CallReason`] says.
pub async fn write(
    desk: &Desk<'_>,
    primary: &Object,
    request: WriteRequest,
) -> Result<String, CallError> {
    let request = read(request, &mut desk.budget.lock())?;
    check_target(desk, &request.target)?;
    let source = source(desk, &request, primary)?;
    let actual = actual(&request, source, &mut desk.budget.lock())?;
    if let (Some(by), Some((actual, tree))) = (request.compare, &actual)
        && matches(desk, &request, by, actual.as_ref(), tree)
    {
        return Ok(actual
            .as_ref()
            .map_or_else(|| tree.to_string(), |object| object.json().to_owned()));
    }
    let Some(write) = compose(desk, &request, actual.as_ref().map(|(_, tree)| tree))? else {
        return Ok(actual.map_or_else(String::new, |(_, tree)| tree.to_string()));
    };
    let filtered = matches!(
        request.mode,
        WriteMode::MatchAndFilter | WriteMode::Optimistic | WriteMode::ForceFilter
    );
    let tell = |notices| tell(desk.queue, notices);
    let window = source
        .filter(|_| filtered)
        .map(|source| source.begin(request.target.key.clone(), tell));
    let answer = desk.cluster.write(write).await.map_err(refused)?;
    let answer = answer.ok_or_else(|| {
        CallError::new(
            CallReason::Other,
            "the API server answered without an object",
        )
    })?;
    match (window, source) {
        (Some(window), _) => window.wrote(answer.clone()),
        (None, Some(source)) if request.mode == WriteMode::CacheOnly => source.put(answer.clone()),
        _ => {}
    }
    Ok(answer.json().to_owned())
}

/// Passes on to the queue what a source has to say.
pub fn tell(queue: &Queue, notices: Vec<Notice>) {
    let now = Instant::now();
    for Notice { primary, what } in notices {
        let event = match what {
            What::Changed { deleting } => queue::Event::PrimaryChanged { deleting },
            What::Deleted { unknown, .. } => queue::Event::PrimaryDeleted { unknown },
            What::Related => queue::Event::Related,
        };
        queue.event(&primary, event, now);
    }
}

/// Deletes an object.
///
/// # Errors
/// As [`CallReason`] says; an object that is gone is none.
pub async fn remove(
    desk: &Desk<'_>,
    target: ObjectTarget,
    deletion: Deletion,
) -> Result<(), CallError> {
    let target = Target::object(target.gvk, target.key);
    check_target(desk, &target)?;
    let gvk = target.gvk.clone();
    let left = desk
        .cluster
        .write(Write {
            target,
            verb: Verb::Delete(deletion),
        })
        .await
        .map_err(refused)?;
    if let Some(left) = left {
        for source in sources(desk, &gvk) {
            source.put(left.clone());
        }
    }
    Ok(())
}

/// Compares two documents that the guest gives.
///
/// # Errors
/// `invalid` if one is not JSON; `missing` for [`Comparison::Applied`] if the object is in no cache, so that nobody
/// knows what is ours.
pub fn compare(
    desk: &Desk<'_>,
    primary: &Object,
    question: &CompareQuestion,
) -> Result<MatchResult, CallError> {
    let CompareQuestion {
        by,
        actual,
        desired,
        ignore,
    } = question;
    let budget = &mut *desk.budget.lock();
    let (actual, desired) = (
        json(actual, "actual", budget)?,
        json(desired, "desired", budget)?,
    );
    let ignored = GenericMatching {
        ignore: ignore.iter().map(|p| p.as_str().into()).collect(),
        ..Default::default()
    };
    match by {
        Comparison::ByVerb => Err(CallError::new(
            CallReason::Invalid,
            "by-verb needs a write; name a comparison",
        )),
        Comparison::Generic => Ok(diff::compare(&actual, &desired, &ignored, budget)),
        Comparison::StatusOnly => Ok(diff::compare_status(&actual, &desired, ignore, budget)),
        Comparison::Equality => Ok(diff::compare_all(&actual, &desired, ignore, budget)),
        Comparison::Applied => {
            let target = named(&desired)?;
            let cached = cached(desk, primary, &target).ok_or_else(|| {
                let message = format!(
                    "{} {} is in no cache: nobody knows which fields are ours",
                    target.gvk, target.key
                );
                CallError::new(CallReason::Missing, message)
            })?;
            let fields = cached.share(desk.manager, None).map(|share| &*share.fields);
            let part = Part::Object;
            let question = managed_fields::Comparison {
                fields,
                actual: &actual,
                desired: &desired,
                part,
                ignore,
            };
            managed_fields::compare(&question, budget)
                .map_err(|e| CallError::new(CallReason::Other, e.to_string()))
        }
    }
}

/// Whether an apply of `document` would change nothing: our share of the object, or of its subresource, equals it.
pub fn is_applied(
    actual: &Object,
    document: &Value,
    manager: &str,
    subresource: Option<&str>,
    budget: &mut Budget,
) -> bool {
    let Some(part) = part(subresource) else {
        return false;
    };
    let verdict = dependent::compare_applied(actual, document, manager, part, budget);
    matches!(verdict, Ok(MatchResult::Matches))
}

/// Returns the part of an object that a subresource is, if it is one of those that are compared.
fn part(subresource: Option<&str>) -> Option<Part> {
    match subresource {
        None => Some(Part::Object),
        Some("status") => Some(Part::Status),
        Some(_) => None,
    }
}

/// The same, for another body of the object.
fn is_applied_in(
    desk: &Desk<'_>,
    owned: &Object,
    actual: &Value,
    desired: &Value,
    subresource: Option<&str>,
) -> bool {
    let Some(part) = part(subresource) else {
        return false;
    };
    let Ok(share) = dependent::share(owned, desk.manager, part) else {
        return false;
    };
    let fields = share.map(|share| &*share.fields);
    let ignore: &[&str] = &[];
    let question = managed_fields::Comparison {
        fields,
        actual,
        desired,
        part,
        ignore,
    };
    let verdict = managed_fields::compare(&question, &mut desk.budget.lock());
    matches!(verdict, Ok(MatchResult::Matches))
}

/// Says of an API server's refusal what the contract calls it.
pub fn refused(error: cluster::Error) -> CallError {
    let reason = match error.reason {
        Reason::Missing | Reason::UnknownKind => CallReason::Missing,
        Reason::Conflict => CallReason::Conflict,
        Reason::Forbidden | Reason::Rejected => CallReason::Rejected,
        Reason::Unreachable => CallReason::Unreachable,
        Reason::Invalid => CallReason::Invalid,
    };
    CallError {
        reason,
        code: error.code,
        message: error.message,
    }
}

// === reading a request ===

fn read(request: WriteRequest, budget: &mut Budget) -> Result<Request, CallError> {
    let WriteRequest { verb, options } = request;
    let (target, verb) = match verb {
        WriteVerb::Create(text) => {
            document(&text, budget).map(|(target, tree)| (target, Body::Create(tree)))?
        }
        WriteVerb::Apply(text) => {
            document(&text, budget).map(|(target, tree)| (target, Body::Apply(tree)))?
        }
        WriteVerb::Update(text) => {
            document(&text, budget).map(|(target, tree)| (target, Body::Update(tree)))?
        }
        WriteVerb::Edit(text) => {
            document(&text, budget).map(|(target, tree)| (target, Body::Edit(tree)))?
        }
        WriteVerb::JsonPatch(target, text) => {
            let patch = Patch::read(&text, budget).map_err(|e| invalid(e.to_string()))?;
            (target, Body::JsonPatch(patch, text))
        }
        WriteVerb::MergePatch(target, text) => {
            (target, Body::MergePatch(json(&text, "the patch", budget)?))
        }
    };
    let subresource = options.subresource.as_deref().map(Into::into);
    let target = Target {
        gvk: target.gvk,
        key: target.key,
        subresource,
    };
    let (mode, compare) = treatment(&verb, &target, &options)?;
    if mode == WriteMode::Optimistic && !verb.carries_version() {
        return Err(invalid(
            "mode optimistic needs a resourceVersion in the document, or a test of it in the patch",
        ));
    }
    Ok(Request {
        target,
        verb,
        mode,
        compare,
        options,
    })
}

/// `RO-4`, `RO-6`: mode and comparison, as asked for or as is usual for the verb.
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
    let compare = options
        .compare_by
        .or(compared.then_some(Comparison::ByVerb));
    let status = target.subresource.as_deref() == Some("status");
    let by_verb = match verb {
        Body::Update(_) if status => Comparison::StatusOnly,
        Body::Apply(_) => Comparison::Applied,
        Body::Update(_) => Comparison::Generic,
        // Patches are compared by what they would lead to.
        Body::Create(_) | Body::Edit(_) | Body::JsonPatch(..) | Body::MergePatch(_) => {
            Comparison::Equality
        }
    };
    Ok((
        mode,
        compare.map(|by| {
            if by == Comparison::ByVerb {
                by_verb
            } else {
                by
            }
        }),
    ))
}

fn document(text: &str, budget: &mut Budget) -> Result<(ObjectTarget, Value), CallError> {
    let tree = json(text, "the object", budget)?;
    Ok((named(&tree)?, tree))
}

/// Returns the object that a document is about.
fn named(tree: &Value) -> Result<ObjectTarget, CallError> {
    let text = |pointer: &str| {
        tree.pointer(pointer)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let needed =
        |pointer: &str| text(pointer).ok_or_else(|| invalid(format!("the object lacks {pointer}")));
    let gvk =
        Gvk::parse(needed("/apiVersion")?, needed("/kind")?).map_err(|e| invalid(e.to_string()))?;
    let key = ObjectRef {
        namespace: text("/metadata/namespace").map(Into::into),
        name: needed("/metadata/name")?.into(),
    };
    Ok(ObjectTarget { gvk, key })
}

fn json(text: &str, what: &str, budget: &mut Budget) -> Result<Value, CallError> {
    budget.read(text).map_err(|error| match error {
        budget::Error::Json(error) => invalid(format!("{what} is not JSON: {error}")),
        budget::Error::Exceeded(error) => CallError::new(
            CallReason::Exhausted,
            format!("{what} is too large: {error}"),
        ),
    })
}

fn invalid(message: impl Into<String>) -> CallError {
    CallError::new(CallReason::Invalid, message)
}

fn check_target(desk: &Desk<'_>, target: &Target) -> Result<(), CallError> {
    if let Some((what, text)) = target.misfit() {
        return Err(invalid(format!("{what} {text:?} is not one")));
    }
    match (desk.cluster.scope(&target.gvk), &target.key.namespace) {
        (Some(Scope::Namespaced), None) => Err(invalid(format!(
            "{} lives in a namespace: name it",
            target.gvk
        ))),
        (Some(Scope::Cluster), Some(_)) => Err(invalid(format!(
            "{} lives in no namespace: leave it out",
            target.gvk
        ))),
        _ => Ok(()),
    }
}

impl Body {
    fn carries_version(&self) -> bool {
        match self {
            Self::Create(tree)
            | Self::Apply(tree)
            | Self::Update(tree)
            | Self::Edit(tree)
            | Self::MergePatch(tree) => tree
                .pointer("/metadata/resourceVersion")
                .is_some_and(Value::is_string),
            Self::JsonPatch(patch, _) => patch.0.iter().any(
                |step| matches!(step, Operation::Test { path, .. } if *path == version_path()),
            ),
        }
    }
}

// === the caches ===

fn sources<'a>(desk: &Desk<'a>, gvk: &Gvk) -> Vec<&'a Arc<Source>> {
    let all = std::iter::once(desk.primaries).chain(desk.secondaries.values());
    all.filter(|source| source.spec().gvk == *gvk).collect()
}

/// `RO-2`: the source that a write concerns; none in mode `plain`.
fn source<'a>(
    desk: &Desk<'a>,
    request: &Request,
    primary: &Object,
) -> Result<Option<&'a Arc<Source>>, CallError> {
    // What another subresource answers is of another kind, and nothing for the caches.
    let other = request
        .target
        .subresource
        .as_deref()
        .is_some_and(|name| name != "status");
    if request.mode == WriteMode::Plain || other {
        return Ok(None);
    }
    if let Some(name) = &request.options.source {
        let found = desk
            .secondaries
            .get(&**name)
            .filter(|source| source.spec().gvk == request.target.gvk);
        let missing = || {
            CallError::new(
                CallReason::Missing,
                format!("no source {name:?} watches {}", request.target.gvk),
            )
        };
        return found.map(Some).ok_or_else(missing);
    }
    let found = sources(desk, &request.target.gvk);
    match found.as_slice() {
        [] => {
            let message = format!(
                "no source watches {}; mode plain writes it all the same",
                request.target.gvk
            );
            Err(CallError::new(CallReason::Missing, message))
        }
        [source] => Ok(Some(source)),
        // The primary of the run is a primary, whatever else watches the kind.
        [first, ..]
            if Arc::ptr_eq(first, desk.primaries) && request.target.key == *primary.key() =>
        {
            Ok(Some(first))
        }
        several => Ok(several
            .iter()
            .find(|source| source.get(&request.target.key).is_some())
            .or(several.first())
            .copied()),
    }
}

fn cached(desk: &Desk<'_>, primary: &Object, target: &ObjectTarget) -> Option<Object> {
    let found = sources(desk, &target.gvk)
        .into_iter()
        .filter_map(|source| source.get(&target.key));
    found
        .max_by_key(Object::version)
        .or_else(|| (*primary.key() == target.key).then(|| primary.clone()))
}

/// The object to compare with: given, or cached.
type Actual = (Option<Object>, Value);

fn actual(
    request: &Request,
    source: Option<&Arc<Source>>,
    budget: &mut Budget,
) -> Result<Option<Actual>, CallError> {
    let cached = source.and_then(|source| source.get(&request.target.key));
    let tree = match (&request.options.actual, &cached) {
        (Some(text), _) => json(text, "actual", budget)?,
        (None, Some(object)) => object
            .tree(budget)
            .map_err(|e| CallError::new(CallReason::Exhausted, e.to_string()))?,
        (None, None) => return Ok(None),
    };
    Ok(Some((cached, tree)))
}

// === comparing and composing ===

fn matches(
    desk: &Desk<'_>,
    request: &Request,
    by: Comparison,
    cached: Option<&Object>,
    actual: &Value,
) -> bool {
    let led_to = match &request.verb {
        Body::Create(_) => return false,
        Body::Apply(tree) | Body::Update(tree) | Body::Edit(tree) => Cow::Borrowed(tree),
        // What can't be carried out here within bounds is left to the API server, which has its own.
        Body::JsonPatch(patch, _) => match patch.apply(actual.clone(), &mut desk.budget.lock()) {
            Ok(tree) => Cow::Owned(tree),
            Err(_) => return false,
        },
        Body::MergePatch(patch) => {
            let mut tree = actual.clone();
            if patch::merge(&mut tree, patch, &mut desk.budget.lock()).is_err() {
                return false;
            }
            Cow::Owned(tree)
        }
    };
    let desired = &*led_to;
    let verdict = match by {
        Comparison::Applied => {
            let subresource = request.target.subresource.as_deref();
            return cached
                .is_some_and(|object| is_applied_in(desk, object, actual, desired, subresource));
        }
        Comparison::StatusOnly => {
            let ignore: &[&str] = &[];
            diff::compare_status(actual, desired, ignore, &mut desk.budget.lock())
        }
        Comparison::Generic => {
            let flags = GenericMatching::default();
            diff::compare(actual, desired, &flags, &mut desk.budget.lock())
        }
        Comparison::Equality | Comparison::ByVerb => return actual == desired,
    };
    verdict == MatchResult::Matches
}

/// Returns what is sent; none for an edit that changes nothing.
fn compose(
    desk: &Desk<'_>,
    request: &Request,
    actual: Option<&Value>,
) -> Result<Option<Write>, CallError> {
    let manager = Arc::clone(desk.manager);
    let verb = match &request.verb {
        Body::Create(tree) => Verb::Create {
            body: tree.to_string(),
            manager,
        },
        Body::Apply(tree) => Verb::Apply {
            body: tree.to_string(),
            manager,
        },
        Body::Update(tree) => Verb::Replace {
            body: tree.to_string(),
            manager,
        },
        Body::MergePatch(tree) => Verb::MergePatch {
            body: tree.to_string(),
            manager,
        },
        Body::JsonPatch(_, text) => Verb::JsonPatch {
            body: text.clone(),
            manager,
        },
        Body::Edit(tree) => {
            let missing = || {
                CallError::new(
                    CallReason::Missing,
                    format!("{} is in no cache: nothing to edit", request.target.key),
                )
            };
            let actual = actual.ok_or_else(missing)?;
            let mut patch = patch::diff(actual, tree, &mut desk.budget.lock())
                .map_err(|e| CallError::new(CallReason::Exhausted, format!("the edit: {e}")))?;
            if patch.0.is_empty() {
                return Ok(None);
            }
            if request.mode == WriteMode::Optimistic {
                pin(&mut patch, tree);
            }
            Verb::JsonPatch {
                body: patch.text(),
                manager,
            }
        }
    };
    Ok(Some(Write {
        target: request.target.clone(),
        verb,
    }))
}

/// Lets a patch fail unless the object is in the version that the document names.
fn pin(patch: &mut Patch, document: &Value) {
    let path = version_path();
    patch.0.retain(|step| step.path() != &path);
    let value = document
        .pointer("/metadata/resourceVersion")
        .cloned()
        .unwrap_or_default();
    patch.0.insert(0, Operation::Test { path, value });
}

fn version_path() -> patch::Path {
    patch::Path::of(["metadata", "resourceVersion"])
}
