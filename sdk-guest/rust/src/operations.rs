//! Writes to the cluster, beyond what the workflow and an [`Update`](crate::Update) do.
//!
//! Each function returns the object as it is after the write; the caches have it too by then.
//!
//! ```
//! # use capstan_guest::operations::{self, Mode, Options};
//! # use serde_json::json;
//! # capstan_guest::test::with(capstan_guest::test::Run::new(), || {
//! # let theme = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "theme", "namespace": "web" } });
//! operations::apply(&theme)?;
//! Options::new().mode(Mode::Plain).subresource("status").apply(&theme)?;
//! # Ok::<_, capstan_guest::Error>(())
//! # }).answer?;
//! # Ok::<_, capstan_guest::Error>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::bindings::imports::capstan::operator::operations::{
    Comparison, Propagation as Fate, RemoveOptions, WriteMode, WriteOptions,
};
use crate::bindings::imports::capstan::operator::types::{self, CallError};
use crate::changes::some_namespace;
use crate::{Error, Json, Match, Metadata, Result, daemon};

/// How a write is treated. To another object of the primary's kind the event of a write is news in any mode: it causes a run of
/// that object.
pub type Mode = WriteMode;
/// How objects are compared.
pub type By = Comparison;
/// What becomes of the objects that a deleted one owns.
pub type Propagation = Fate;
/// An object of any kind, by its name.
pub type ObjectRef = types::ObjectRef;

impl ObjectRef {
    /// Returns a reference to a cluster-scoped object; see [`in_namespace`](ObjectRef::in_namespace) for the others.
    pub fn new(api_version: &str, kind: &str, name: &str) -> Self {
        let (api_version, kind, name) = (api_version.to_owned(), kind.to_owned(), name.to_owned());
        Self { api_version, kind, namespace: None, name }
    }

    /// Adds the namespace; an empty one is none.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = some_namespace(Some(namespace));
        self
    }

    /// Returns the reference to an object that has apiVersion, kind and metadata.
    pub fn of(object: &impl Serialize) -> Result<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Object {
            api_version: String,
            kind: String,
            metadata: Metadata,
        }
        let Object { api_version, kind, metadata } = Json::of(object)?.parse()?;
        Ok(Self { api_version, kind, namespace: some_namespace(metadata.namespace.as_deref()), name: metadata.name })
    }
}

/// Creates an object. A [`Conflict`](crate::Reason::Conflict) if it exists.
pub fn create(object: &impl Serialize) -> Result<Json> {
    Options::new().create(object)
}

/// Applies an object: server-side apply with the controller's field manager. Sent exactly as given. Forced if the object
/// is the primary's; of any other, fields that another manager has are a [`Conflict`](crate::Reason::Conflict).
pub fn apply(object: &impl Serialize) -> Result<Json> {
    Options::new().apply(object)
}

/// Applies an object like [`apply`], but forced, whosever it is: takes fields from other managers.
pub fn force_apply(object: &impl Serialize) -> Result<Json> {
    Options::new().force_apply(object)
}

/// Replaces an object.
pub fn update(object: &impl Serialize) -> Result<Json> {
    Options::new().update(object)
}

/// Sends the JSON patch that leads from the cached object to this one.
pub fn edit(object: &impl Serialize) -> Result<Json> {
    Options::new().edit(object)
}

/// Sends a JSON patch (RFC 6902).
pub fn json_patch(target: &ObjectRef, patch: &impl Serialize) -> Result<Json> {
    Options::new().json_patch(target, patch)
}

/// Sends a JSON merge patch (RFC 7386).
pub fn merge_patch(target: &ObjectRef, patch: &impl Serialize) -> Result<Json> {
    Options::new().merge_patch(target, patch)
}

/// Deletes an object. It is a success if it is gone already.
pub fn remove(target: &ObjectRef) -> Result<()> {
    Removal::new().remove(target)
}

/// Adds a finalizer to the primary; `None` = the controller's, in all-events mode the one that the manifest names. Needed in that mode only. Any
/// other takes the grants `patch` and `delete` on the primary's kind.
pub fn add_finalizer<'a>(finalizer: impl Into<Option<&'a str>>) -> Result<Json> {
    answer(daemon::operations::add_finalizer(finalizer.into()))
}

/// Removes a finalizer from the primary; `None` = the controller's. Returns the last known primary if it is gone.
pub fn remove_finalizer<'a>(finalizer: impl Into<Option<&'a str>>) -> Result<Json> {
    answer(daemon::operations::remove_finalizer(finalizer.into()))
}

/// Compares without writing. Differences under the JSON pointers `ignore` do not count.
pub fn compare(by: By, actual: &impl Serialize, desired: &impl Serialize, ignore: &[&str]) -> Result<Match> {
    let (actual, desired) = (Json::of(actual)?, Json::of(desired)?);
    let ignore: Vec<String> = ignore.iter().map(ToString::to_string).collect();
    daemon::operations::compare(by, actual.as_str(), desired.as_str(), &ignore).map_err(Error::of_call)
}

/// The fine print of a write, and the verbs that take it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "write something with it"]
pub struct Options(WriteOptions);

impl Options {
    /// Returns what is usual for the verb.
    pub fn new() -> Self {
        Self(WriteOptions { mode: Mode::Usual, compare_by: None, subresource: None, source: None, actual: None })
    }

    /// Says how the write is treated.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.0.mode = mode;
        self
    }

    /// Says how it is compared; if it matches it is not written.
    pub fn compare_by(mut self, by: By) -> Self {
        self.0.compare_by = Some(by);
        self
    }

    /// Writes a subresource, such as `status` or `scale`.
    pub fn subresource(mut self, name: &str) -> Self {
        self.0.subresource = Some(name.to_owned());
        self
    }

    /// Says which source the write concerns, if several watch the kind.
    pub fn source(mut self, name: &str) -> Self {
        self.0.source = Some(name.to_owned());
        self
    }

    /// Compares with this object instead of the cached one.
    pub fn actual(mut self, object: &impl Serialize) -> Result<Self> {
        self.0.actual = Some(Json::of(object)?.into_string());
        Ok(self)
    }

    /// Like [`create`].
    pub fn create(&self, object: &impl Serialize) -> Result<Json> {
        answer(daemon::operations::create(Json::of(object)?.as_str(), Some(&self.0)))
    }

    /// Like [`apply`].
    pub fn apply(&self, object: &impl Serialize) -> Result<Json> {
        answer(daemon::operations::apply(Json::of(object)?.as_str(), Some(&self.0)))
    }

    /// Like [`force_apply`].
    pub fn force_apply(&self, object: &impl Serialize) -> Result<Json> {
        answer(daemon::operations::force_apply(Json::of(object)?.as_str(), Some(&self.0)))
    }

    /// Like [`update`].
    pub fn update(&self, object: &impl Serialize) -> Result<Json> {
        answer(daemon::operations::update(Json::of(object)?.as_str(), Some(&self.0)))
    }

    /// Like [`edit`].
    pub fn edit(&self, object: &impl Serialize) -> Result<Json> {
        answer(daemon::operations::edit(Json::of(object)?.as_str(), Some(&self.0)))
    }

    /// Like [`json_patch()`].
    pub fn json_patch(&self, target: &ObjectRef, patch: &impl Serialize) -> Result<Json> {
        answer(daemon::operations::json_patch(target, Json::of(patch)?.as_str(), Some(&self.0)))
    }

    /// Like [`merge_patch`].
    pub fn merge_patch(&self, target: &ObjectRef, patch: &impl Serialize) -> Result<Json> {
        answer(daemon::operations::merge_patch(target, Json::of(patch)?.as_str(), Some(&self.0)))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// The fine print of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "remove something with it"]
pub struct Removal(RemoveOptions);

impl Removal {
    /// Returns what is usual for the kind.
    pub fn new() -> Self {
        Self(RemoveOptions { propagation: Propagation::Usual, uid: None, resource_version: None, grace_seconds: None })
    }

    /// Says what becomes of owned objects.
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.0.propagation = propagation;
        self
    }

    /// Deletes only the object with this uid.
    pub fn only_uid(mut self, uid: &str) -> Self {
        self.0.uid = Some(uid.to_owned());
        self
    }

    /// Deletes only this version.
    pub fn only_at(mut self, resource_version: &str) -> Self {
        self.0.resource_version = Some(resource_version.to_owned());
        self
    }

    /// Gives the object so many seconds for its end.
    pub fn grace_seconds(mut self, seconds: u32) -> Self {
        self.0.grace_seconds = Some(seconds);
        self
    }

    /// Like [`remove`].
    pub fn remove(&self, target: &ObjectRef) -> Result<()> {
        daemon::operations::remove(target, Some(&self.0)).map_err(Error::of_call)
    }
}

impl Default for Removal {
    fn default() -> Self {
        Self::new()
    }
}

fn answer(written: Result<String, CallError>) -> Result<Json> {
    written.map(Json::unchecked).map_err(Error::of_call)
}
