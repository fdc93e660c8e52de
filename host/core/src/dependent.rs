//! Decides about one dependent: its desired state, whether its object matches, and the write that brings it there.
//!
//! [`need`] returns what to do first (`DR-2`). [`Desired`] is the desired state, [`compare`] compares an object with
//! it, and [`create`], [`update`], [`adopt`], [`tie`] and [`delete`] return the writes, as plain data. [`ownership`] decides
//! whose an object is. [`managed_fields`] and [`diff`] are the two ways to compare, also for every other write.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::budget::{self, Budget};
use crate::cluster::{Deletion, Propagation, Target, Verb, Write};
use crate::guest::MatchResult;
use crate::manifest::{Dependent, GenericMatching, Manage, MappingKeys, Matching};
use crate::object::{self, Gvk, Object, ObjectRef, Share};

pub mod contest;
pub mod diff;
pub mod managed_fields;
pub mod ownership;

mod defaults;
mod desired;
mod difference;

pub use desired::{Desired, Origin};
pub(crate) use desired::{Misplaced, place};
use managed_fields::{Comparison, Part};

/// The next step for a dependent, given whether its object exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The object does not exist: ask for the desired state and create it.
    Create,
    /// The object exists: ask for the desired state, compare, and update the object if it differs.
    Compare,
    /// Nothing; the desired state is not even asked for.
    Nothing,
}

/// A label or an annotation of an object that names its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign<'a> {
    /// `labels` or `annotations`.
    pub part: &'static str,
    /// Its key.
    pub key: &'a str,
}

/// An error of a dependent. Retrying helps only if the component answers differently.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The answer is not JSON.
    #[error("dependent {dependent}: {what} is not JSON: {source}")]
    NotJson {
        /// The dependent's name.
        dependent: String,
        /// The answer that was read.
        what: &'static str,
        /// The JSON error, or the bound that the answer exceeds.
        source: budget::Error,
    },
    /// A field of the answer is wrong.
    #[error("dependent {dependent}: {field} is {found}; right would be {right}")]
    Field {
        /// The dependent's name.
        dependent: String,
        /// The field.
        field: &'static str,
        /// The value that was found.
        found: String,
        /// The values that are allowed.
        right: String,
    },
    /// An owner reference is needed but not possible (`KD-2`).
    #[error(
        "dependent {dependent}: {object} can't be owned by {primary}, which is in another namespace or the only one of \
         the two that has one; set `garbageCollected: false`, then it is deleted by the daemon"
    )]
    Unownable {
        /// The dependent's name.
        dependent: String,
        /// The object that would be owned.
        object: ObjectRef,
        /// The primary.
        primary: ObjectRef,
    },
    /// Several shares of our field manager (`SSA-1`).
    #[error("{object} has {count} entries in managedFields for {manager} with operation Apply; one is right")]
    Shares {
        /// The object.
        object: ObjectRef,
        /// Our field manager.
        manager: String,
        /// The number of shares.
        count: usize,
    },
    /// A share can't be read.
    #[error("the fields that {object} has in managedFields for {manager} can't be read: {source}")]
    Fields {
        /// The object.
        object: ObjectRef,
        /// Our field manager.
        manager: String,
        /// The error of the `fieldsV1` document.
        source: serde_json::Error,
    },
    /// The cached object can't be read.
    #[error("{object}: {source}")]
    Actual {
        /// The object.
        object: ObjectRef,
        /// The error of the object.
        source: object::Error,
    },
}

/// Returns the next step for a dependent (`DR-2`).
pub fn need(manage: &Manage, actual: Option<&Object>) -> Need {
    match actual {
        None if manage.create => Need::Create,
        Some(_) if manage.update => Need::Compare,
        None | Some(_) => Need::Nothing,
    }
}

// === impl Sign ===

impl<'a> Sign<'a> {
    /// Returns all labels or annotations by which a mapping finds the primary.
    pub fn all(part: &'static str, keys: &'a MappingKeys) -> impl Iterator<Item = Self> {
        let MappingKeys { name, namespace, kind, across_namespaces: _ } = keys;
        let keys = [Some(name), namespace.as_ref(), kind.as_ref()].into_iter().flatten();
        keys.map(move |key| Self { part, key })
    }
}

// === comparing ===

/// What is said of an object that only differs in the version as which it was applied (`KD-12`).
const OLD_VERSION: &str = "it was applied as another version of its kind";

/// Returns whether an object is as desired, compared as the manifest says. A dependent with a matcher export is
/// compared in the usual way here; for its real verdict the export has to be called instead (`SSA-6`).
///
/// # Errors
/// [`Error::Shares`], [`Error::Fields`] or [`Error::Actual`] for an object that can't be read, or costs too much.
pub fn compare(
    actual: &Object,
    desired: &Desired,
    dependent: &Dependent,
    manager: &str,
    budget: &mut Budget,
) -> Result<MatchResult, Error> {
    let usual = GenericMatching::default();
    let flags = match &dependent.matching {
        Matching::Generic(flags) => flags,
        Matching::Usual | Matching::DryRun | Matching::Export(_) if dependent.server_side_apply => {
            let compared =
                compare_applied(actual, &defaults::completed(desired.tree()), manager, Part::Object, budget)?;
            if !dependent.detect_api_version_change || compared != MatchResult::Matches {
                return Ok(compared);
            }
            let is_old = share(actual, manager, Part::Object)?.is_some_and(|share| !share.same_version);
            return Ok(if is_old { MatchResult::Differs(OLD_VERSION.to_owned()) } else { compared });
        }
        Matching::Usual | Matching::DryRun | Matching::Export(_) => &usual,
    };
    let actual = tree(actual, budget)?;
    Ok(diff::compare(&actual, &defaults::completed(desired.tree()), flags, budget))
}

/// Returns true if an object lacks an owner that is desired: it would not go with it.
pub fn lacks_owner(actual: &Object, desired: &Desired) -> bool {
    let wanted = desired.tree().pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_there = |uid: &str| actual.header().owners.iter().any(|owner| *owner.uid == *uid);
    let uids = wanted.into_iter().flatten().filter_map(|owner| owner.get("uid")?.as_str());
    uids.into_iter().any(|uid| !is_there(uid))
}

/// Returns whether the fields that `manager` has applied to an object, or to its status, still equal `desired` (SSA
/// rules). If so, applying `desired` would change nothing.
///
/// # Errors
/// [`Error::Shares`], [`Error::Fields`] or [`Error::Actual`] for an object that can't be read, or costs too much.
pub fn compare_applied(
    actual: &Object,
    desired: &Value,
    manager: &str,
    part: Part,
    budget: &mut Budget,
) -> Result<MatchResult, Error> {
    let fields = share(actual, manager, part)?.map(|share| &*share.fields);
    let ignore: &[&str] = &[];
    let comparison = Comparison { fields, actual: &tree(actual, budget)?, desired, part, ignore };
    managed_fields::compare(&comparison, budget).map_err(|source| Error::Fields {
        object: actual.key().clone(),
        manager: manager.to_owned(),
        source,
    })
}

/// Returns whether an object is as a write would leave it (`TR-1`). What each write changes of its own accord does not count.
///
/// # Errors
/// [`Error::Actual`] for an object that can't be read, or costs too much.
pub fn compare_outcome(actual: &Object, outcome: &Object, budget: &mut Budget) -> Result<MatchResult, Error> {
    let (found, left) = (tree(actual, budget)?, tree(outcome, budget)?);
    Ok(diff::compare_all(
        &found,
        &left,
        &["/metadata/managedFields", "/metadata/resourceVersion", "/metadata/generation"],
        budget,
    ))
}

/// Returns the share that `manager` has applied to an object or its status; `None` if there is none.
///
/// # Errors
/// [`Error::Shares`] if there are several (`SSA-1`).
pub fn share<'a>(object: &'a Object, manager: &str, part: Part) -> Result<Option<&'a Share>, Error> {
    let subresource = match part {
        Part::Object => None,
        Part::Status => Some("status"),
    };
    let shares = object.header().shares.iter();
    let mut own =
        shares.filter(|s| s.applied && &*s.manager == manager && s.subresource.as_deref() == subresource).peekable();
    let first = own.next();
    match own.peek() {
        None => Ok(first),
        Some(_) => {
            Err(Error::Shares { object: object.key().clone(), manager: manager.to_owned(), count: own.count() + 1 })
        }
    }
}

// === writing ===

/// Returns the write that creates a dependent (`KD-6`, `KD-7`). It is a conflict if the object exists: an object that
/// is in no cache may still exist and belong to another owner.
pub fn create(desired: &Desired, dependent: &Dependent, manager: &Arc<str>) -> Write {
    let manager = manager.clone();
    let verb = if dependent.server_side_apply {
        Verb::Apply { body: with_first_version(desired.tree()), manager, force: false }
    } else {
        Verb::Create { body: desired.json(), manager }
    };
    sent(desired, dependent, verb)
}

/// Returns the write that shows if a dependent could be made beside the object that there is: then the only thing wrong with it is that it
/// exists, which is a conflict (`TR-2`).
pub fn create_beside(desired: &Desired, dependent: &Dependent, manager: &Arc<str>) -> Write {
    sent(desired, dependent, Verb::Create { body: desired.json(), manager: manager.clone() })
}

/// Returns the write that brings a dependent from `actual` to `desired` (`KD-8`). Another object of the same name is
/// a conflict. Without server-side apply, labels and annotations are added but never removed, and a change since
/// `actual` is a conflict, too.
///
/// # Errors
/// [`Error::Actual`] if `actual` can't be read.
pub fn update(
    actual: &Object,
    desired: &Desired,
    dependent: &Dependent,
    manager: &Arc<str>,
    budget: &mut Budget,
) -> Result<Write, Error> {
    let only = [("uid", &*actual.header().uid)];
    over((actual, &only), desired, dependent, manager, budget)
}

/// Returns the write that adopts an object that is not ours. Any change since `actual`, on which the decision to
/// adopt was based, is a conflict.
///
/// # Errors
/// [`Error::Actual`] if `actual` can't be read.
pub fn adopt(
    actual: &Object,
    desired: &Desired,
    dependent: &Dependent,
    manager: &Arc<str>,
    budget: &mut Budget,
) -> Result<Write, Error> {
    let version = actual.version().to_string();
    let only = [("uid", &*actual.header().uid), ("resourceVersion", &*version)];
    over((actual, &only), desired, dependent, manager, budget)
}

/// Returns the write that adopts an object of a dependent that is not updated: it gets what ties it to its primary, and stays as it is in
/// all else (`KD-6`). That are the owner reference, the mark and what names the primary, also as the dependent's source finds it by these
/// `signs`. Any change since `actual` is a conflict.
///
/// # Errors
/// [`Error::Actual`] if `actual` can't be read.
pub fn tie(
    actual: &Object,
    (desired, signs): (&Desired, &[Sign<'_>]),
    dependent: &Dependent,
    manager: &Arc<str>,
    budget: &mut Budget,
) -> Result<Write, Error> {
    let mut signs = signs.to_vec();
    signs.push(Sign { part: "annotations", key: ownership::MARK });
    if !dependent.garbage_collected {
        signs.extend(Sign::all("annotations", &dependent.mapping));
    }
    let wanted = desired.tree().get("metadata").unwrap_or(&Value::Null);
    let mut ties = Map::new();
    for Sign { part, key } in signs {
        let tags = ties.entry(part).or_insert_with(|| json!({}));
        if let (Value::Object(tags), Some(value)) = (tags, wanted.get(part).and_then(|all| all.get(key))) {
            tags.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(owners) = wanted.get("ownerReferences") {
        ties.insert("ownerReferences".to_owned(), owners.clone());
    }
    let mut tree = tree(actual, budget)?;
    if let Some(Value::Object(metadata)) = tree.get_mut("metadata") {
        merge_metadata(metadata, &Value::Object(ties.clone()));
        // A patch replaces lists as a whole.
        if let Some(owners) = metadata.get("ownerReferences") {
            ties.insert("ownerReferences".to_owned(), owners.clone());
        }
    }
    let manager = manager.clone();
    let verb = if dependent.server_side_apply {
        // An apply would drop what the same manager has applied for a former primary.
        let version = actual.version().to_string();
        let only = [("uid", &*actual.header().uid), ("resourceVersion", &*version)];
        Verb::MergePatch { body: upon(&json!({ "metadata": ties }), &only), manager }
    } else {
        Verb::Replace { body: tree.to_string(), manager }
    };
    Ok(sent(desired, dependent, verb))
}

/// Returns the write over `actual`: a forced apply with `only` in its metadata, or one that replaces it, with its uid and version.
fn over(
    (actual, only): (&Object, &[(&str, &str)]),
    desired: &Desired,
    dependent: &Dependent,
    manager: &Arc<str>,
    budget: &mut Budget,
) -> Result<Write, Error> {
    let manager = manager.clone();
    let verb = if dependent.server_side_apply {
        Verb::Apply { body: upon(desired.tree(), only), manager, force: true }
    } else {
        Verb::Replace { body: replacement(tree(actual, budget)?, desired.tree()).to_string(), manager }
    };
    Ok(sent(desired, dependent, verb))
}

fn sent(desired: &Desired, dependent: &Dependent, verb: Verb) -> Write {
    let target = Target::object(dependent.gvk.clone(), desired.key().clone());
    Write::new(target, verb, dependent.field_validation)
}

/// Returns the write that deletes exactly this object, whatever its version (`KD-9`). Another object of the same name
/// is a conflict.
pub fn delete(gvk: Gvk, object: &Object) -> Write {
    // Jobs would leave their pods behind, unless told otherwise.
    let propagation = Some(Propagation::Background);
    let deletion = Deletion { uid: Some(object.header().uid.to_string()), propagation, ..Deletion::default() };
    Write::own(Target::object(gvk, object.key().clone()), Verb::Delete(deletion))
}

/// Returns the write that deletes exactly this version of an object, and before or after it what it owns. Any later change is a conflict.
pub fn delete_as_seen(gvk: Gvk, object: &Object, propagation: Propagation) -> Write {
    let deletion = Deletion {
        uid: Some(object.header().uid.to_string()),
        version: Some(object.version().to_string()),
        propagation: Some(propagation),
        ..Deletion::default()
    };
    Write::own(Target::object(gvk, object.key().clone()), Verb::Delete(deletion))
}

/// Returns the body of an apply that is a conflict if the object exists, because it names version 1 (`KD-6`).
pub(crate) fn with_first_version(desired: &Value) -> String {
    upon(desired, &[("resourceVersion", "1")])
}

/// Returns the text of a document with these fields added to its metadata, so that it applies to no other object.
fn upon(desired: &Value, metadata: &[(&str, &str)]) -> String {
    let mut tree = desired.clone();
    if let Some(Value::Object(all)) = tree.get_mut("metadata") {
        all.extend(metadata.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    }
    tree.to_string()
}

/// Returns `desired` with the metadata of `actual`, into which labels, annotations and owner references are merged.
/// It keeps the status of `actual`, which would be lost for a kind without a status subresource.
fn replacement(mut actual: Value, desired: &Value) -> Value {
    let mut tree = desired.as_object().cloned().unwrap_or_default();
    let mut take = |name| actual.get_mut(name).map(Value::take);
    if let Some(status) = take("status") {
        tree.entry("status").or_insert(status);
    }
    let wanted = tree.remove("metadata").unwrap_or_default();
    let mut metadata = match take("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    merge_metadata(&mut metadata, &wanted);
    tree.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(tree)
}

/// Adds the labels, annotations and owner references of `wanted` to the metadata of an object.
fn merge_metadata(metadata: &mut Map<String, Value>, wanted: &Value) {
    for name in ["labels", "annotations"] {
        let Some(Value::Object(tags)) = wanted.get(name).filter(|tags| **tags != json!({})) else { continue };
        let merged = metadata.entry(name).or_insert_with(|| json!({}));
        if let Value::Object(merged) = merged {
            merged.extend(tags.clone());
        }
    }
    for owner in wanted.get("ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
        if let Value::Array(owners) = owners
            && owners.iter().all(|known| known.get("uid") != owner.get("uid"))
        {
            owners.push(owner.clone());
        }
    }
}

fn tree(object: &Object, budget: &mut Budget) -> Result<Value, Error> {
    object.tree(budget).map_err(|source| Error::Actual { object: object.key().clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Managers, Scope};

    /// A dependent with all defaults.
    pub(super) fn dependent(api_version: &str, kind: &str) -> Dependent {
        Dependent::of(Gvk::parse(api_version, kind).unwrap())
    }

    fn object(dependent: &Dependent, body: &Value) -> Object {
        Object::parse(&body.to_string(), &dependent.gvk, &Managers::new(["web"])).unwrap()
    }

    fn desired(dependent: &Dependent, answer: &Value) -> Desired {
        let gvk = Gvk::parse("sample.dev/v1", "WebPage").unwrap();
        let json = json!({"metadata": {"name": "page", "namespace": "web", "uid": "u-1"}});
        let primary = Object::parse(&json.to_string(), &gvk, &Managers::default()).unwrap();
        let origin = Origin {
            name: "conf",
            dependent,
            scope: Scope::Namespaced,
            primary: &primary,
            primary_gvk: &gvk,
            mark: &ownership::Mark::new(("web", "pages", "conf"), &primary, &gvk),
        };
        Desired::parse(&answer.to_string(), &origin, &mut Budget::of_run()).unwrap()
    }

    /// Returns the method and the body of a write by `web` to the object `web/a`.
    fn sent(write: Write, dependent: &Dependent) -> (&'static str, Value) {
        assert_eq!(write.target, Target::object(dependent.gvk.clone(), ObjectRef::namespaced("web", "a")));
        let (method, body, manager) = match write.verb {
            Verb::Create { body, manager } => ("create", body, manager),
            Verb::Apply { body, manager, force: false } => ("apply", body, manager),
            Verb::Apply { body, manager, .. } => ("force", body, manager),
            Verb::Replace { body, manager } => ("replace", body, manager),
            Verb::JsonPatch { .. } | Verb::MergePatch { .. } | Verb::Delete(_) => {
                panic!("not expected")
            }
        };
        assert_eq!(&*manager, "web");
        (method, serde_json::from_str(&body).unwrap())
    }

    #[test]
    fn traits_say_what_is_done_with_an_object() {
        // DR-1, DR-2
        let there = object(&dependent("v1", "Pod"), &json!({"metadata": {"name": "a"}}));
        for (create, update, absent, present) in [
            (true, true, Need::Create, Need::Compare),
            (true, false, Need::Create, Need::Nothing),
            (false, true, Need::Nothing, Need::Compare),
            (false, false, Need::Nothing, Need::Nothing),
        ] {
            let manage = Manage { create, update, delete: true };
            assert_eq!((need(&manage, None), need(&manage, Some(&there))), (absent, present));
        }
    }

    #[test]
    fn a_dependent_is_created_by_apply_or_by_post() {
        // KD-5, KD-6, KD-7
        let manager: Arc<str> = "web".into();
        for (kind, server_side_apply, create_only, method, version) in [
            ("Service", true, false, "apply", Some("1")),
            ("Service", true, true, "apply", Some("1")),
            ("Service", false, true, "create", None),
            ("ConfigMap", false, false, "create", None),
            ("ConfigMap", true, false, "apply", Some("1")),
        ] {
            let dependent = Dependent { create_only, server_side_apply, ..dependent("v1", kind) };
            let desired = desired(&dependent, &json!({"metadata": {"name": "a"}, "spec": {"x": 1}}));
            let mut expected = desired.tree().clone();
            if let Some(version) = version {
                expected["metadata"]["resourceVersion"] = json!(version);
            }
            assert_eq!(sent(create(&desired, &dependent, &manager), &dependent), (method, expected), "{kind}");
        }
    }

    #[test]
    fn an_update_applies_or_puts_the_wanted_fields_into_the_actual_metadata() {
        // KD-8
        let manager: Arc<str> = "web".into();
        let answer = json!({"metadata": {"name": "a", "labels": {"a": "2", "c": "3"}, "annotations": {"k": "v"}}, "data": {"new": "1"}, "binaryData": {}});
        let theirs = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-0"});
        let actual = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"old": "1"}, "immutable": true, "status": {"s": 1},
            "metadata": {"name": "a", "namespace": "web", "resourceVersion": "7", "labels": {"a": "1", "b": "1"},
                "ownerReferences": [theirs]}});
        let plain = dependent("v1", "ConfigMap");
        let wanted = desired(&plain, &answer);
        let write = update(&object(&plain, &actual), &wanted, &plain, &manager, &mut Budget::of_run()).unwrap();
        let owner = wanted.tree()["metadata"]["ownerReferences"][0].clone();
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"new": "1"}, "binaryData": {}, "status": {"s": 1},
            "metadata": {"name": "a", "namespace": "web", "resourceVersion": "7",
                "labels": {"a": "2", "b": "1", "c": "3"}, "annotations": {"k": "v"},
                "ownerReferences": [theirs, owner]}});
        assert_eq!(sent(write, &plain), ("replace", expected));

        let applied = Dependent { server_side_apply: true, ..plain };
        let mut actual = actual;
        actual["metadata"]["uid"] = "u-7".into();
        let actual = object(&applied, &actual);
        let write = update(&actual, &wanted, &applied, &manager, &mut Budget::of_run()).unwrap();
        let mut expected = wanted.tree().clone();
        expected["metadata"]["uid"] = "u-7".into();
        assert_eq!(sent(write, &applied), ("force", expected.clone()));
        let write = adopt(&actual, &wanted, &applied, &manager, &mut Budget::of_run()).unwrap();
        expected["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(sent(write, &applied), ("force", expected));
    }

    #[test]
    fn a_deletion_means_this_very_object() {
        // KD-9
        let map = dependent("v1", "ConfigMap");
        let actual = json!({"metadata": {"name": "a", "namespace": "web", "uid": "u-7", "resourceVersion": "7"}});
        let expected = Write::own(
            Target::object(map.gvk.clone(), ObjectRef::namespaced("web", "a")),
            Verb::Delete(Deletion {
                uid: Some("u-7".to_owned()),
                propagation: Some(Propagation::Background),
                ..Deletion::default()
            }),
        );
        assert_eq!(delete(map.gvk.clone(), &object(&map, &actual)), expected);
    }

    #[test]
    fn an_object_that_was_applied_as_another_version_differs_if_the_manifest_wants_to_know() {
        // KD-12
        let body = |version: &str| {
            let share = json!({"manager": "web", "operation": "Apply", "apiVersion": version, "fieldsV1": {"f:spec": {"f:x": {}}}});
            json!({"metadata": {"name": "a", "managedFields": [share]}, "spec": {"x": "1"}})
        };
        for (detect_api_version_change, version, wanted, differs) in [
            (true, "apps/v1", "1", None),
            (true, "apps/v1beta1", "1", Some(OLD_VERSION)),
            (false, "apps/v1beta1", "1", None),
            (true, "apps/v1beta1", "2", Some("/spec/x: found \"1\", wanted \"2\"")),
        ] {
            let manage = Manage { create: false, ..Manage::default() };
            let dependent = Dependent { manage, detect_api_version_change, ..dependent("apps/v1", "Deployment") };
            let desired = desired(&dependent, &json!({"metadata": {"name": "a"}, "spec": {"x": wanted}}));
            let found =
                compare(&object(&dependent, &body(version)), &desired, &dependent, "web", &mut Budget::of_run());
            let expected = differs.map_or(MatchResult::Matches, |text| MatchResult::Differs(text.to_owned()));
            assert_eq!(found.unwrap(), expected, "{detect_api_version_change} {version} {wanted}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn a_dependent_is_compared_as_its_manifest_says() {
        // SSA-1, GM-1, GM-2
        let shared = json!({"f:data": {"f:x": {}}});
        let body = json!({"metadata": {"name": "a", "managedFields": [{"manager": "web", "operation": "Apply", "fieldsV1": shared}]},
            "data": {"x": "1", "theirs": "2"}});
        let generic = |equality| {
            Matching::Generic(GenericMatching {
                equality,
                ..GenericMatching::default()
            })
        };
        for (server_side_apply, matching, wanted, differences) in [
            (true, Matching::Usual, json!({"x": "1"}), None),
            (true, Matching::Usual, json!({}), Some("/data/x: found \"1\", no longer wanted")),
            (false, Matching::Usual, json!({}), None),
            (true, generic(false), json!({}), None),
            (true, generic(true), json!({"x": "1"}), Some("/data/theirs: found \"2\", no longer wanted")),
            (true, Matching::Export("own".into()), json!({}), Some("/data/x: found \"1\", no longer wanted")),
        ] {
            let manage = Manage {
                create: false,
                ..Manage::default()
            };
            let dependent = Dependent { manage, server_side_apply, matching, ..dependent("v1", "ConfigMap")
            };
            let desired = desired(
                &dependent,
                &json!({"metadata": {"name": "a"}, "data": wanted}),
            );
            let expected = differences.map_or(MatchResult::Matches, |text| {
                MatchResult::Differs(text.to_owned())
            });
            assert_eq!(
                compare(&object(&dependent, &body), &desired, &dependent, "web", &mut Budget::of_run()).unwrap(),
                expected
            );
        }
    }

    #[test]
    fn only_the_one_share_that_we_applied_counts() {
        // SSA-1
        let entry = |manager: &str, operation: &str, subresource: &str, field: &str| json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": {field: {}}});
        let ours = entry("web", "Apply", "", "f:a");
        let others = [
            entry("web", "Update", "", "f:b"),
            entry("other", "Apply", "", "f:c"),
            entry("web", "Apply", "status", "f:status"),
        ];
        let service = dependent("v1", "Service");
        let with = |entries: &[Value]| object(&service, &json!({"metadata": {"name": "a", "managedFields": entries}}));

        let one = with(&[&others[..], std::slice::from_ref(&ours)].concat());
        assert_eq!(&*share(&one, "web", Part::Object).unwrap().unwrap().fields, r#"{"f:a":{}}"#);
        assert_eq!(&*share(&one, "web", Part::Status).unwrap().unwrap().fields, r#"{"f:status":{}}"#);
        assert_eq!(share(&with(&others), "web", Part::Object).unwrap(), None);
        let error = share(&with(&[ours.clone(), ours]), "web", Part::Object).unwrap_err();
        let text = "a has 2 entries in managedFields for web with operation Apply; one is right";
        assert_eq!(error.to_string(), text);
    }
}
