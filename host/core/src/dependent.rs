//! Decides what becomes of one dependent: what it should be, whether it is that, and the write that makes it so.
//!
//! [`need`] says what to do first (`DR-2`), [`Desired`] is what the component wants, [`compare`] whether the cluster
//! has it, and [`create`], [`update`] and [`delete`] are the writes, as plain data. [`managed_fields`] and [`diff`] are
//! the two ways to compare, for everything else that is written too.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::cluster::{Deletion, Target, Verb, Write};
use crate::guest::MatchResult;
use crate::manifest::{Dependent, GenericMatching, Manage, Matching};
use crate::object::{self, Gvk, Object, ObjectRef, Share};

pub mod diff;
pub mod managed_fields;

mod desired;
mod difference;
mod sanitize;

pub use desired::{Desired, Origin};
use managed_fields::{Comparison, Part};

/// What a dependent needs, given whether its object exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is absent: ask for the desired state and create it.
    Create,
    /// It is there: ask for the desired state, compare, and update it if it differs.
    Compare,
    /// Nothing; the desired state is not even asked for.
    Nothing,
}

/// What is wrong with a dependent. Retrying helps only if the component answers otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The answer is not JSON.
    #[error("dependent {dependent}: what `desired` returned is not JSON: {source}")]
    NotJson {
        /// The dependent's name.
        dependent: String,
        /// Where it stops being JSON.
        source: serde_json::Error,
    },
    /// A field of the answer is wrong.
    #[error("dependent {dependent}: {field} is {found}; right would be {right}")]
    Field {
        /// The dependent's name.
        dependent: String,
        /// Which field.
        field: &'static str,
        /// What was found there.
        found: String,
        /// What would be right.
        right: String,
    },
    /// An owner reference is needed and not possible (`KD-2`).
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
        /// How many there are.
        count: usize,
    },
    /// A share can't be read.
    #[error("the fields that {object} has in managedFields for {manager} can't be read: {source}")]
    Fields {
        /// The object.
        object: ObjectRef,
        /// Our field manager.
        manager: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// The cached object can't be read.
    #[error("{object}: {source}")]
    Actual {
        /// The object.
        object: ObjectRef,
        /// What is wrong with it.
        source: object::Error,
    },
}

/// Returns what a dependent needs first (`DR-2`).
pub fn need(manage: &Manage, actual: Option<&Object>) -> Need {
    match actual {
        None if manage.create => Need::Create,
        Some(_) if manage.update => Need::Compare,
        None | Some(_) => Need::Nothing,
    }
}

// === comparing ===

/// Returns whether an object is as desired, compared as its manifest says. For a dependent that is matched by an export,
/// which has to be asked instead (`SSA-6`), this is the usual comparison.
///
/// # Errors
/// [`Error::Shares`], [`Error::Fields`] or [`Error::Actual`] for an object that can't be understood.
pub fn compare(
    actual: &Object,
    desired: &Desired,
    dependent: &Dependent,
    manager: &str,
) -> Result<MatchResult, Error> {
    match &dependent.matching {
        Matching::Generic(flags) => Ok(diff::compare(&tree(actual)?, desired.tree(), flags)),
        Matching::Usual | Matching::Export(_) if dependent.applied() => {
            compare_applied(actual, desired.tree(), manager, Part::Object)
        }
        Matching::Usual | Matching::Export(_) => {
            Ok(diff::compare(&tree(actual)?, desired.tree(), &GenericMatching::default()))
        }
    }
}

/// Returns whether what `manager` has applied to an object, or to its status, is still `desired` (SSA rules): if it is,
/// applying `desired` would change nothing.
///
/// # Errors
/// [`Error::Shares`], [`Error::Fields`] or [`Error::Actual`] for an object that can't be understood.
pub fn compare_applied(actual: &Object, desired: &Value, manager: &str, part: Part) -> Result<MatchResult, Error> {
    let fields = share(actual, manager, part)?.map(|share| &*share.fields);
    let ignore: &[&str] = &[];
    let comparison = Comparison { fields, actual: &tree(actual)?, desired, part, ignore };
    managed_fields::compare(&comparison).map_err(|source| Error::Fields {
        object: actual.key().clone(),
        manager: manager.to_owned(),
        source,
    })
}

/// Returns what `manager` has applied to an object or its status.
///
/// # Errors
/// [`Error::Shares`] if there are several records of it (`SSA-1`).
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
        Some(_) => Err(Error::Shares {
            object: object.key().clone(),
            manager: manager.to_owned(),
            count: own.count() + 1,
        }),
    }
}

// === writing ===

/// Returns the write that creates a dependent (`KD-6`, `KD-7`).
pub fn create(desired: &Desired, dependent: &Dependent, manager: &Arc<str>) -> Write {
    let manager = manager.clone();
    let verb = match (dependent.applied(), dependent.create_only) {
        (false, _) => Verb::Create { body: desired.json(), manager },
        (true, false) => Verb::Apply { body: desired.json(), manager },
        (true, true) => Verb::Apply { body: with_first_version(desired.tree()), manager },
    };
    Write { target: Target::object(dependent.gvk.clone(), desired.key().clone()), verb }
}

/// Returns the write that brings a dependent from `actual` to `desired` (`KD-8`). Without server-side apply, labels and
/// annotations are added and never removed (quirk 12), and a change since `actual` is a conflict.
///
/// # Errors
/// [`Error::Actual`] if `actual` can't be read.
pub fn update(actual: &Object, desired: &Desired, dependent: &Dependent, manager: &Arc<str>) -> Result<Write, Error> {
    let manager = manager.clone();
    let verb = if dependent.applied() {
        Verb::Apply { body: desired.json(), manager }
    } else {
        Verb::Replace { body: replacement(tree(actual)?, desired.tree()).to_string(), manager }
    };
    Ok(Write { target: Target::object(dependent.gvk.clone(), desired.key().clone()), verb })
}

/// Returns the write that deletes an object, whatever its version (`KD-9`).
pub fn delete(gvk: Gvk, key: ObjectRef) -> Write {
    Write { target: Target::object(gvk, key), verb: Verb::Delete(Deletion::default()) }
}

/// `KD-6`: an apply that names a version conflicts if the object exists.
fn with_first_version(desired: &Value) -> String {
    let mut tree = desired.clone();
    if let Some(Value::Object(metadata)) = tree.get_mut("metadata") {
        metadata.insert("resourceVersion".to_owned(), json!("1"));
    }
    tree.to_string()
}

/// Returns `desired` with the metadata of `actual`, into which labels, annotations and owner references are merged, and
/// with its status, which a kind without a subresource for it would lose.
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
    for name in ["labels", "annotations"] {
        if let Some(Value::Object(tags)) = wanted.get(name) {
            let merged = metadata.entry(name).or_insert_with(|| json!({}));
            if let Value::Object(merged) = merged {
                merged.extend(tags.clone());
            }
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
    tree.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(tree)
}

fn tree(object: &Object) -> Result<Value, Error> {
    object.tree().map_err(|source| Error::Actual { object: object.key().clone(), source })
}
