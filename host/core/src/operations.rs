//! Decides how a write that a guest asks for is carried out: whether it is needed, and what its event causes (RO rules).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::budget::{self, Budget};
use crate::cluster::{self, Cluster, Deletion, Reason, Target, Verb, Write};
use crate::dependent::managed_fields::Part;
use crate::dependent::{self, diff, managed_fields, ownership};
use crate::guest::{
    CallError, CallReason, CompareQuestion, Comparison, MatchResult, ObjectTarget, WriteMode, WriteOptions,
    WriteRequest, WriteVerb,
};
use crate::manifest::{self, GenericMatching, Permission};
use crate::object::{Gvk, Object, ObjectRef, Scope};
use crate::patch::{self, Operation, Patch};
use crate::permission::Permissions;
use crate::permission::ties::{self, Before, Effect, Manner};
use crate::source::{Listener, Source, Within};

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
    pub tell: &'a Listener,
    /// What the run may still spend on documents.
    pub budget: &'a Mutex<Budget>,
    /// What the component may do.
    pub permissions: &'a Permissions,
    /// The secondaries that the manifest declares for reading; the others are those of dependents.
    pub declared: &'a BTreeMap<Arc<str>, manifest::Source>,
    /// The controller's finalizer.
    pub finalizer: &'a str,
}

/// A write after its document has been read.
struct Request {
    target: Target,
    verb: Body,
    mode: WriteMode,
    compare: Option<Comparison>,
    options: WriteOptions,
    /// Whether it is to fail if the object exists.
    only_if_new: bool,
}

/// What is sent.
enum Body {
    Create(Value),
    Apply(Value),
    ForceApply(Value),
    Update(Value),
    Edit(Value),
    /// Sent as it was understood, not as it was written: a name that is there twice may mean another to the API server.
    JsonPatch(Patch),
    MergePatch(Value),
}

/// Carries out a write and returns the object as it is then; or the cached one, if nothing would change (`RO-5`).
///
/// # Errors
/// As [`CallReason`] says.
pub async fn write(desk: &Desk<'_>, primary: &Object, request: WriteRequest) -> Result<String, CallError> {
    let mut request = read(request, &mut desk.budget.lock())?;
    check_target(desk, &request.target)?;
    check_permission(desk, &mut request, primary)?;
    let source = source(desk, &request, primary)?;
    if let Some(source) = source.filter(|_| !matches!(request.verb, Body::Create(_))) {
        let known = source.known(Within::Object(&request.target.key));
        known.map_err(|doubt| CallError::new(CallReason::Unreachable, doubt.to_string()))?;
    }
    let actual = actual(&request, source, &mut desk.budget.lock())?;
    if let (Some(by), Some((cached, tree))) = (request.compare, &actual)
        && matches(desk, &request, by, cached.as_ref(), tree)
    {
        return Ok(unchanged(desk, primary, &request, cached.as_ref(), tree));
    }
    let ours = matches!(request.verb, Body::Apply(_)) && is_ours(desk, &request.target, primary);
    let Some(write) = compose(desk, &request, actual.as_ref().map(|(_, tree)| tree), ours)? else {
        let unchanged = |(cached, tree): &Actual| unchanged(desk, primary, &request, cached.as_ref(), tree);
        return Ok(actual.as_ref().map_or_else(String::new, unchanged));
    };
    let filtered = matches!(request.mode, WriteMode::MatchAndFilter | WriteMode::Optimistic | WriteMode::ForceFilter);
    let key = &request.target.key;
    let window = source
        .filter(|source| filtered && desk.filters(source, key, primary))
        .map(|source| source.begin(key.clone(), |notices| (desk.tell)(notices)));
    let answer = desk.cluster.write(write).await;
    let answer = answer.map_err(|error| refused(discreet(desk, primary, &request, error)))?;
    let answer =
        answer.ok_or_else(|| CallError::new(CallReason::Other, "the API server answered without an object"))?;
    match (window, source) {
        (Some(window), _) => window.wrote(answer.clone()),
        (None, Some(source)) => source.put(answer.clone()),
        // There is no source in mode `plain`, nor for other subresources.
        (None, None) => {}
    }
    if source.is_some() && request.target.gvk == desk.primaries.spec().gvk {
        desk.primaries.put(answer.clone());
    }
    let created = matches!(request.verb, Body::Create(_));
    if created || desk.may_see(primary, &request.target.gvk, &answer) {
        return Ok(answer.json().to_owned());
    }
    Ok(name_only(&request.target.gvk, &answer))
}

/// Returns the answer to a write that would change nothing: the object that it was compared with, as far as the component
/// may see it.
fn unchanged(desk: &Desk<'_>, primary: &Object, request: &Request, cached: Option<&Object>, tree: &Value) -> String {
    let gvk = &request.target.gvk;
    match cached {
        Some(object) if desk.may_see(primary, gvk, object) => object.json().to_owned(),
        Some(object) => name_only(gvk, object),
        // The component's own words.
        None => tree.to_string(),
    }
}

/// Returns what an object is called and in which version it is, without anything that is in it.
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
/// As [`CallReason`] says; an object that is gone is none.
pub async fn remove(desk: &Desk<'_>, target: ObjectTarget, deletion: Deletion) -> Result<(), CallError> {
    let target = Target::object(target.gvk, target.key);
    check_target(desk, &target)?;
    desk.permissions.permit(Permission::Delete, &target.gvk, &target.key)?;
    let gvk = target.gvk.clone();
    let left = desk.cluster.write(Write { target, verb: Verb::Delete(deletion) }).await.map_err(refused)?;
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
pub fn compare(desk: &Desk<'_>, primary: &Object, question: &CompareQuestion) -> Result<MatchResult, CallError> {
    let CompareQuestion { by, actual, desired, ignore } = question;
    let budget = &mut *desk.budget.lock();
    let (actual, desired) = (parsed(actual, "actual", budget)?, parsed(desired, "desired", budget)?);
    let ignored = GenericMatching { ignore: ignore.iter().map(|p| p.as_str().into()).collect(), ..Default::default() };
    match by {
        Comparison::ByVerb => Err(CallError::new(CallReason::Invalid, "by-verb needs a write; name a comparison")),
        Comparison::Generic => Ok(diff::compare(&actual, &desired, &ignored, budget)),
        Comparison::StatusOnly => Ok(diff::compare_status(&actual, &desired, ignore, budget)),
        Comparison::Equality => Ok(diff::compare_all(&actual, &desired, ignore, budget)),
        Comparison::Applied => {
            let target = named(&desired)?;
            let cached = cached(desk, primary, &target).filter(|object| desk.may_see(primary, &target.gvk, object));
            let cached = cached.ok_or_else(|| {
                let message =
                    format!("{} {} is in no cache: nobody knows which fields are ours", target.gvk, target.key);
                CallError::new(CallReason::Missing, message)
            })?;
            let part = Part::Object;
            let share = dependent::share(&cached, desk.manager, part)
                .map_err(|e| CallError::new(CallReason::Other, e.to_string()))?;
            let fields = share.map(|share| &*share.fields);
            let question = managed_fields::Comparison { fields, actual: &actual, desired: &desired, part, ignore };
            managed_fields::compare(&question, budget).map_err(|e| CallError::new(CallReason::Other, e.to_string()))
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
fn is_applied_in(desk: &Desk<'_>, owned: &Object, actual: &Value, desired: &Value, subresource: Option<&str>) -> bool {
    let Some(part) = part(subresource) else {
        return false;
    };
    let Ok(share) = dependent::share(owned, desk.manager, part) else {
        return false;
    };
    let fields = share.map(|share| &*share.fields);
    let ignore: &[&str] = &[];
    let question = managed_fields::Comparison { fields, actual, desired, part, ignore };
    let verdict = managed_fields::compare(&question, &mut desk.budget.lock());
    matches!(verdict, Ok(MatchResult::Matches))
}

/// Returns an error without what the API server says of an object that the component may not see: it quotes what it refuses, of a
/// patched object also what was there before.
fn discreet(desk: &Desk<'_>, primary: &Object, request: &Request, error: cluster::Error) -> cluster::Error {
    let Target { gvk, key, .. } = &request.target;
    let quotes = error.code == 422 || matches!(error.reason, Reason::Rejected | Reason::Invalid);
    let own = matches!(request.verb, Body::Create(_)) || error.code == 0;
    let target = ObjectTarget { gvk: gvk.clone(), key: key.clone() };
    let sees = || match cached(desk, primary, &target) {
        Some(object) => desk.may_see(primary, gvk, &object),
        None => desk.permissions.may_read(gvk, key.namespace.as_deref()),
    };
    if !quotes || own || sees() {
        return error;
    }
    let fields = match &*error.fields {
        "" => String::new(),
        fields => format!(" for {fields}"),
    };
    let message = format!(
        "{gvk} {key}: refused{fields} (HTTP {}); why is told to those who may see the object, which takes `get`",
        error.code
    );
    cluster::Error { message, ..error }
}

/// Says of an API server's refusal what the contract calls it.
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

// === reading a request ===

fn read(request: WriteRequest, budget: &mut Budget) -> Result<Request, CallError> {
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
    let subresource = options.subresource.as_deref().map(Into::into);
    let target = Target { gvk: target.gvk, key: target.key, subresource };
    let (mode, compare) = treatment(&verb, &target, &options)?;
    if mode == WriteMode::Optimistic && !verb.carries_version() {
        return Err(invalid("mode optimistic needs a resourceVersion in the document, or a test of it in the patch"));
    }
    Ok(Request { target, verb, mode, compare, options, only_if_new: false })
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
    let compare = options.compare_by.or(compared.then_some(Comparison::ByVerb));
    let status = target.subresource.as_deref() == Some("status");
    let by_verb = match verb {
        Body::Update(_) if status => Comparison::StatusOnly,
        Body::Apply(_) | Body::ForceApply(_) => Comparison::Applied,
        Body::Update(_) => Comparison::Generic,
        // Patches are compared by what they would lead to.
        Body::Create(_) | Body::Edit(_) | Body::JsonPatch(_) | Body::MergePatch(_) => Comparison::Equality,
    };
    Ok((mode, compare.map(|by| if by == Comparison::ByVerb { by_verb } else { by })))
}

fn document(text: &str, budget: &mut Budget) -> Result<(ObjectTarget, Value), CallError> {
    let tree = parsed(text, "the object", budget)?;
    Ok((named(&tree)?, tree))
}

/// Returns the object that a document is about.
fn named(tree: &Value) -> Result<ObjectTarget, CallError> {
    let text = |pointer: &str| tree.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let needed = |pointer: &str| text(pointer).ok_or_else(|| invalid(format!("the object lacks {pointer}")));
    let gvk = Gvk::parse(needed("/apiVersion")?, needed("/kind")?).map_err(|e| invalid(e.to_string()))?;
    let key =
        ObjectRef { namespace: text("/metadata/namespace").map(Into::into), name: needed("/metadata/name")?.into() };
    Ok(ObjectTarget { gvk, key })
}

fn parsed(text: &str, what: &str, budget: &mut Budget) -> Result<Value, CallError> {
    budget.read(text).map_err(|error| match error {
        budget::Error::Json(error) => invalid(format!("{what} is not JSON: {error}")),
        budget::Error::Exceeded(error) => {
            CallError::new(CallReason::Exhausted, format!("{what} is too large: {error}"))
        }
    })
}

fn invalid(message: impl AsRef<str>) -> CallError {
    CallError::new(CallReason::Invalid, message)
}

fn check_target(desk: &Desk<'_>, target: &Target) -> Result<(), CallError> {
    if let Some((what, text)) = target.misfit() {
        return Err(invalid(format!("{what} {text:?} is not one")));
    }
    match (desk.cluster.scope(&target.gvk), &target.key.namespace) {
        (Some(Scope::Namespaced), None) => Err(invalid(format!("{} lives in a namespace: name it", target.gvk))),
        (Some(Scope::Cluster), Some(_)) => Err(invalid(format!("{} lives in no namespace: leave it out", target.gvk))),
        _ => Ok(()),
    }
}

// === what is permitted ===

/// Subresources that nobody permits a component.
const DOORS: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Whether the component may send this, as far as the document says: by its grants, and by what becomes of the object.
fn check_permission(desk: &Desk<'_>, request: &mut Request, primary: &Object) -> Result<(), CallError> {
    let Request { target, verb, .. } = &mut *request;
    let Target { gvk, key, subresource } = &*target;
    desk.permissions.permit(verb.permission(), gvk, key)?;
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
        permit_effect(desk, target, effect)?;
    }
    let effect = effect(desk, target, verb, primary)?;
    let is_new = effect == Effect::HarmlessIfNew;
    let permitted = permit_effect(desk, &request.target, effect);
    request.only_if_new = is_new && permitted.is_err();
    if is_new { Ok(()) } else { permitted }
}

/// Returns what a write does to owner references and finalizers, as far as the document says, and takes out of it what only the
/// API server may say.
fn effect(desk: &Desk<'_>, target: &Target, verb: &mut Body, primary: &Object) -> Result<Effect, CallError> {
    let Target { gvk, key, subresource } = target;
    let writer = ties::Writer { primary, primary_gvk: &desk.primaries.spec().gvk, finalizer: desk.finalizer };
    // Not what the component says that it is like.
    let known = || {
        let target = ObjectTarget { gvk: gvk.clone(), key: key.clone() };
        let known = cached(desk, primary, &target);
        known.and_then(|object| object.tree(&mut desk.budget.lock()).ok())
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
            if manner == Manner::Whole && desk.permissions.permit(Permission::Delete, gvk, key).is_err() {
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
fn permit_effect(desk: &Desk<'_>, target: &Target, effect: Effect) -> Result<(), CallError> {
    let what = match effect {
        Effect::Harmless => return Ok(()),
        Effect::HarmlessIfNew => "it may be there already, and would go with the primary".to_owned(),
        Effect::Foreign(what) => what,
    };
    let Target { gvk, key, .. } = target;
    let permitted = desk.permissions.permit(Permission::Delete, gvk, key);
    permitted.map_err(|denied| CallError {
        message: format!("{gvk} {key}: {what}, which takes `delete`: {}", denied.message),
        ..denied
    })
}

impl Desk<'_> {
    /// Whether a source answers for all that it holds: that of primaries, and those that the manifest declares. That of a
    /// dependent is there to write it.
    pub fn is_declared(&self, source: &Arc<Source>) -> bool {
        let mut declared = self.declared.keys();
        Arc::ptr_eq(source, self.primaries)
            || declared.any(|name| {
                let found = self.secondaries.get(name);
                found.is_some_and(|found| Arc::ptr_eq(found, source))
            })
    }

    /// Whether the component may see what is in an object.
    pub fn may_see(&self, primary: &Object, gvk: &Gvk, object: &Object) -> bool {
        let key = object.key();
        let namespace = key.namespace.as_deref();
        let owners = &object.header().owners;
        self.permissions.may_read(gvk, namespace)
            || owners.iter().any(|owner| owner.uid == primary.header().uid)
            || sources(self, gvk).into_iter().any(|source| {
                let declared = self.is_declared(source) && source.get(key).is_some();
                declared || source.relates(object, primary.key())
            })
    }
}

impl Body {
    /// Returns the permission that it takes.
    fn permission(&self) -> Permission {
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

// === the caches ===

impl Desk<'_> {
    /// Whether the event of a write may cause no run: one of the run's own primary or of a secondary. To another primary it
    /// is news, which only that one's own run acts on.
    fn filters(&self, source: &Arc<Source>, key: &ObjectRef, primary: &Object) -> bool {
        !Arc::ptr_eq(source, self.primaries) || key == primary.key()
    }
}

fn sources<'a>(desk: &Desk<'a>, gvk: &Gvk) -> Vec<&'a Arc<Source>> {
    let all = std::iter::once(desk.primaries).chain(desk.secondaries.values());
    all.filter(|source| source.spec().gvk == *gvk).collect()
}

/// `RO-2`: the source that a write concerns; none in mode `plain`.
fn source<'a>(desk: &Desk<'a>, request: &Request, primary: &Object) -> Result<Option<&'a Arc<Source>>, CallError> {
    // What another subresource answers is of another kind, and nothing for the caches.
    let other = request.target.subresource.as_deref().is_some_and(|name| name != "status");
    if request.mode == WriteMode::Plain || other {
        return Ok(None);
    }
    if let Some(name) = &request.options.source {
        let found = desk.secondaries.get(&**name).filter(|source| source.spec().gvk == request.target.gvk);
        let missing =
            || CallError::new(CallReason::Missing, format!("no source {name:?} watches {}", request.target.gvk));
        return found.map(Some).ok_or_else(missing);
    }
    let key = &request.target.key;
    let mut found = sources(desk, &request.target.gvk);
    // Where a kind is watched both ways, another primary is a secondary.
    if found.len() > 1 {
        found.retain(|source| desk.filters(source, key, primary));
    }
    match found.as_slice() {
        [] => {
            let message = format!("no source watches {}; mode plain writes it all the same", request.target.gvk);
            Err(CallError::new(CallReason::Missing, message))
        }
        [source] => Ok(Some(source)),
        // The primary of the run is a primary, whatever else watches the kind.
        [first, ..] if Arc::ptr_eq(first, desk.primaries) && key == primary.key() => Ok(Some(first)),
        several => {
            Ok(several.iter().find(|source| source.get(&request.target.key).is_some()).or(several.first()).copied())
        }
    }
}

fn cached(desk: &Desk<'_>, primary: &Object, target: &ObjectTarget) -> Option<Object> {
    let found = sources(desk, &target.gvk).into_iter().filter_map(|source| source.get(&target.key));
    let is_primary = target.gvk == desk.primaries.spec().gvk && target.key == *primary.key();
    found.max_by_key(Object::version).or_else(|| is_primary.then(|| primary.clone()))
}

/// The object to compare with: given, or cached.
type Actual = (Option<Object>, Value);

fn actual(request: &Request, source: Option<&Arc<Source>>, budget: &mut Budget) -> Result<Option<Actual>, CallError> {
    let cached = source.and_then(|source| source.get(&request.target.key));
    let tree = match (&request.options.actual, &cached) {
        (Some(text), _) => parsed(text, "actual", budget)?,
        (None, Some(object)) => {
            object.tree(budget).map_err(|e| CallError::new(CallReason::Exhausted, e.to_string()))?
        }
        (None, None) => return Ok(None),
    };
    Ok(Some((cached, tree)))
}

// === comparing and composing ===

fn matches(desk: &Desk<'_>, request: &Request, by: Comparison, cached: Option<&Object>, actual: &Value) -> bool {
    let led_to = match &request.verb {
        Body::Create(_) => return false,
        Body::Apply(tree) | Body::ForceApply(tree) | Body::Update(tree) | Body::Edit(tree) => Cow::Borrowed(tree),
        // What can't be carried out here within bounds is left to the API server, which has its own.
        Body::JsonPatch(patch) => match patch.apply(actual.clone(), &mut desk.budget.lock()) {
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
            return cached.is_some_and(|object| is_applied_in(desk, object, actual, desired, subresource));
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

/// Whether the object that a write concerns is the primary of the run, or belongs to it: by uid, or because it is mapped
/// to it and we have applied it before. Nobody else's fields in it are worth a conflict.
fn is_ours(desk: &Desk<'_>, target: &Target, primary: &Object) -> bool {
    if target.gvk == desk.primaries.spec().gvk && target.key == *primary.key() {
        return true;
    }
    let seen = sources(desk, &target.gvk);
    seen.into_iter().any(|source| {
        source.get(&target.key).is_some_and(|object| {
            // Several shares of ours are an error elsewhere; here they say that it was applied, too.
            let share = || dependent::share(&object, desk.manager, Part::Object);
            let applied = || !matches!(share(), Ok(None));
            ownership::is_for(&object, &primary.header().uid) || (source.relates(&object, primary.key()) && applied())
        })
    })
}

/// Returns what is sent; none for an edit that changes nothing. What is `ours` is applied by force.
fn compose(desk: &Desk<'_>, request: &Request, actual: Option<&Value>, ours: bool) -> Result<Option<Write>, CallError> {
    let manager = Arc::clone(desk.manager);
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
            let mut patch = patch::diff(actual, tree, &mut desk.budget.lock())
                .map_err(|e| CallError::new(CallReason::Exhausted, format!("the edit: {e}")))?;
            ties::clean_patch(&mut patch);
            let effect = ties::of_patch(&patch).map_err(invalid)?;
            permit_effect(desk, &request.target, effect)?;
            if patch.0.is_empty() {
                return Ok(None);
            }
            if request.mode == WriteMode::Optimistic {
                pin(&mut patch, tree);
            }
            Verb::JsonPatch { patch, manager }
        }
    };
    Ok(Some(Write { target: request.target.clone(), verb }))
}

/// Lets a patch fail unless the object is in the version that the document names.
fn pin(patch: &mut Patch, document: &Value) {
    let path = version_path();
    patch.0.retain(|step| step.path() != &path);
    let value = document.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    patch.0.insert(0, Operation::Test { path, value });
}

fn version_path() -> patch::Path {
    patch::Path::of(["metadata", "resourceVersion"])
}
