//! Decides what an author's functions can answer.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::bindings::imports::capstan::operator::types::MatchResult;
use crate::{Json, Result};

/// What to write to the primary, and when to come back. An object or status that is `None` is not written.
///
/// ```
/// # use capstan_guest::Update;
/// # use std::time::Duration;
/// # use serde_json::json;
/// Update::nothing();
/// Update::status(json!({ "ready": true }));
/// Update::nothing().reschedule(Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "it is returned from `reconcile`"]
pub struct Update {
    pub(crate) write: Result<Write>,
    pub(crate) version: Option<String>,
    pub(crate) reschedule: Option<Duration>,
}

/// What an [`Update`] writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Write {
    Nothing,
    Object(Value),
    Status(Value),
    ObjectAndStatus(Value, Value),
    Unchecked(Json),
}

impl Update {
    /// Writes nothing.
    pub fn nothing() -> Self {
        Self::writing(Ok(Write::Nothing))
    }

    /// Writes the status. Kind, name and namespace are filled in by the daemon.
    pub fn status(status: impl Serialize) -> Self {
        Self::of(Ok(None), some(&status))
    }

    /// Writes the object without its status. With server-side apply, give the fields that this controller owns and no
    /// others; kind, name and namespace are filled in by the daemon.
    pub fn object(object: impl Serialize) -> Self {
        Self::of(some(&object), Ok(None))
    }

    /// Writes the object, then the status.
    pub fn object_and_status(object: impl Serialize, status: impl Serialize) -> Self {
        Self::of(some(&object), some(&status))
    }

    /// Returns the status that it writes; a test looks at that.
    ///
    /// ```
    /// # use capstan_guest::Update;
    /// # use serde_json::json;
    /// assert_eq!(Update::status(json!({ "ready": true })).written_status(), Some(&json!({ "ready": true })));
    /// assert_eq!(Update::nothing().written_status(), None);
    /// ```
    pub fn written_status(&self) -> Option<&Value> {
        match &self.write {
            Ok(Write::Status(status) | Write::ObjectAndStatus(_, status)) => Some(status),
            Ok(Write::Nothing | Write::Object(_) | Write::Unchecked(_)) | Err(_) => None,
        }
    }

    /// Runs again after so long, at most 49 days.
    pub fn reschedule(mut self, after: Duration) -> Self {
        self.reschedule = Some(after);
        self
    }

    /// Writes only if the primary still has this `metadata.resourceVersion`; else the run fails with a conflict.
    pub fn only_at(mut self, resource_version: impl Into<String>) -> Self {
        self.version = Some(resource_version.into());
        self
    }

    /// Hands over a status document unseen: for test guests that have to misbehave.
    #[doc(hidden)]
    pub fn unchecked_status(document: Json) -> Self {
        Self::writing(Ok(Write::Unchecked(document)))
    }

    /// Writes what there is of the two.
    fn of(object: Result<Option<Value>>, status: Result<Option<Value>>) -> Self {
        let write = object.and_then(|object| {
            Ok(match (object, status?) {
                (None, None) => Write::Nothing,
                (Some(object), None) => Write::Object(object),
                (None, Some(status)) => Write::Status(status),
                (Some(object), Some(status)) => Write::ObjectAndStatus(object, status),
            })
        });
        Self::writing(write)
    }

    fn writing(write: Result<Write>) -> Self {
        Self { write, version: None, reschedule: None }
    }
}

/// Whether a primary may go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it is returned from `cleanup`"]
pub struct Deletion {
    pub(crate) keep: Option<Keep>,
}

/// How long a finalizer is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Keep {
    UntilNextEvent,
    For(Duration),
}

impl Deletion {
    /// Yes. The finalizer is removed if the workflow agrees.
    pub fn remove_finalizer() -> Self {
        Self { keep: None }
    }

    /// Not yet. `cleanup` is called again at the next event.
    pub fn keep_finalizer() -> Self {
        Self { keep: Some(Keep::UntilNextEvent) }
    }

    /// Calls `cleanup` again after so long, too, if the finalizer is kept.
    pub fn reschedule(self, after: Duration) -> Self {
        Self { keep: self.keep.map(|_| Keep::For(after)) }
    }
}

/// A thing outside of the cluster that was created.
///
/// ```
/// # use capstan_guest::{Created, Result};
/// # use serde_json::json;
/// Created::new(json!({ "id": 7, "name": "a" }))?;
/// // With `state` in the manifest:
/// Created::new(json!({ "id": 7 }))?.state(json!({ "metadata": { "name": "a" }, "data": { "id": "7" } }))?;
/// # Ok::<_, capstan_guest::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it is returned from `create_external`"]
pub struct Created {
    pub(crate) actual: Json,
    pub(crate) state: Option<Json>,
}

impl Created {
    /// The thing as it is now. Its id is where the source's `id` in the manifest says.
    pub fn new(actual: impl Serialize) -> Result<Self> {
        Ok(Self { actual: Json::of(&actual)?, state: None })
    }

    /// With the Kubernetes object that remembers its id: needed with `state` in the manifest, and not allowed without. It is written at once, and
    /// deleted together with the thing.
    pub fn state(self, object: impl Serialize) -> Result<Self> {
        Ok(Self { state: some(&object)?.map(|object| Json::of(&object)).transpose()?, ..self })
    }

    /// Returns the thing.
    pub fn actual(&self) -> &Json {
        &self.actual
    }
}

/// How a failure is dealt with: it is logged once for each cause, and retried as the manifest says unless something else is said. `None` in its place
/// says that it was not dealt with, as if there were no error handler. Of `stop`, `retry_after` and `reschedule` one is said; two are an error.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "it is returned from `handle_error`"]
pub struct Handled {
    pub(crate) status: Result<Option<Value>>,
    pub(crate) next: Next,
}

/// How to go on after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    Retry,
    RetryAfter(Duration),
    Stop,
    Reschedule(Duration),
}

impl Default for Handled {
    fn default() -> Self {
        Self { status: Ok(None), next: Next::Retry }
    }
}

impl Handled {
    /// It is dealt with, and nothing is written.
    pub fn new() -> Self {
        Self::default()
    }

    /// It is dealt with by this status.
    pub fn status(status: impl Serialize) -> Self {
        Self { status: some(&status), next: Next::Retry }
    }

    /// Retries after so long, in place of the delay that the manifest says. It uses up an attempt, and none follows the last one.
    pub fn retry_after(self, delay: Duration) -> Self {
        self.next(Next::RetryAfter(delay))
    }

    /// Does not retry: waits for the next event.
    pub fn stop(self) -> Self {
        self.next(Next::Stop)
    }

    /// Does not retry: runs again after so long.
    pub fn reschedule(self, after: Duration) -> Self {
        self.next(Next::Reschedule(after))
    }

    fn next(self, next: Next) -> Self {
        let status = match self.next {
            Next::Retry => self.status,
            Next::RetryAfter(_) | Next::Stop | Next::Reschedule(_) => {
                Err("stop, retry_after and reschedule exclude each other".into())
            }
        };
        Self { status, next }
    }
}

/// When a failed run is retried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it is returned from `decide_retry`"]
pub struct NextRetry(pub(crate) Wait);

/// How long a retry waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wait {
    Declared,
    After(Duration),
    Stop,
}

impl NextRetry {
    /// As the manifest says.
    pub fn declared() -> Self {
        Self(Wait::Declared)
    }

    /// After so long, in place of the delay that the manifest says; at most 49 days. It uses up an attempt, and none follows the last one.
    pub fn after(delay: Duration) -> Self {
        Self(Wait::After(delay))
    }

    /// Not at all: the primary waits for its next event.
    pub fn stop() -> Self {
        Self(Wait::Stop)
    }
}

/// Whether an object is as desired.
pub type Match = MatchResult;

impl Match {
    /// Matches if both are equal; else says that `what` differs. The text is logged, so no secrets in it.
    pub fn equal<T: PartialEq>(what: &str, actual: &T, desired: &T) -> Self {
        if actual == desired { Self::Matches } else { Self::Differs(what.to_owned()) }
    }

    /// Matches if both match; else says what differed first.
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::Matches => other,
            Self::Differs(_) => self,
        }
    }
}

/// Whether a condition is met, and anything worth keeping about it. A `bool` becomes one.
///
/// ```
/// # use capstan_guest::Met;
/// Met::from(true);
/// Met::from(false).detail("2 of 3");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "it is returned from a condition"]
pub struct Met {
    pub(crate) met: bool,
    pub(crate) detail: Result<Option<Value>>,
}

impl Met {
    /// Adds a detail of 16 KiB at most, which is found in the result of the workflow. A text is shown in the status as well.
    pub fn detail(self, detail: impl Serialize) -> Self {
        Self { detail: some(&detail), ..self }
    }
}

impl From<bool> for Met {
    fn from(met: bool) -> Self {
        Self { met, detail: Ok(None) }
    }
}

/// Things of one primary outside of the cluster. A `Vec` becomes one by `into()`.
///
/// ```
/// # use capstan_guest::Things;
/// # use std::time::Duration;
/// # use serde_json::json;
/// Things::of([json!({ "id": "example.com", "ready": true })]);
/// Things::none().again(Duration::from_secs(1));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "it is returned from a poller"]
pub struct Things {
    pub(crate) things: Result<Vec<Json>>,
    pub(crate) again: Option<Duration>,
}

impl Things {
    /// No things.
    pub fn none() -> Self {
        Self { things: Ok(Vec::new()), again: None }
    }

    /// These things: each has an id where the manifest says.
    pub fn of<T: Serialize>(things: impl IntoIterator<Item = T>) -> Self {
        Self { things: things.into_iter().map(|thing| Json::of(&thing)).collect(), again: None }
    }

    /// Reads them again after so long, in place of the manifest's period; at most 49 days.
    pub fn again(mut self, after: Duration) -> Self {
        self.again = Some(after);
        self
    }
}

impl<T: Serialize> From<Vec<T>> for Things {
    fn from(things: Vec<T>) -> Self {
        Self::of(things)
    }
}

/// Things outside of the cluster, by primary.
///
/// ```
/// # use capstan_guest::PrimaryThings;
/// # use serde_json::json;
/// PrimaryThings::new().of("default", "hello", [json!({ "id": 7, "theme": "dark" })]);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "it is returned from a poller"]
pub struct PrimaryThings(pub(crate) Vec<(Option<String>, String, Result<Vec<Json>>)>);

impl PrimaryThings {
    /// No primary has any.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds things of a primary; the namespace of a cluster-scoped one is `None`. Each has an id where the manifest says.
    pub fn of<'a, T: Serialize>(
        mut self,
        namespace: impl Into<Option<&'a str>>,
        name: &str,
        things: impl IntoIterator<Item = T>,
    ) -> Self {
        self.0.push((namespace.into().map(str::to_owned), name.to_owned(), Things::of(things).things));
        self
    }
}

/// Returns a value; what is null, such as `None`, is none.
fn some(of: &impl Serialize) -> Result<Option<Value>> {
    Ok(Some(serde_json::to_value(of)?).filter(|value| !value.is_null()))
}

/// Returns the document for a status: `{"status": …}`, with the version that it is for.
pub(crate) fn status_document(status: Value, version: Option<String>) -> Result<Value> {
    at_version(with_status(json!({}), status)?, version)
}

/// Returns the object with another status.
pub(crate) fn with_status(object: Value, status: Value) -> Result<Value> {
    let mut fields = fields(object)?;
    fields.insert("status".to_owned(), status);
    Ok(Value::Object(fields))
}

/// Returns the object with a resourceVersion, which makes the write fail if somebody else was faster.
pub(crate) fn at_version(object: Value, version: Option<String>) -> Result<Value> {
    let Some(version) = version else {
        return Ok(object);
    };
    let mut fields = fields(object)?;
    let mut metadata = match fields.remove("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(metadata) => self::fields(metadata).map_err(|error| error.context("metadata"))?,
    };
    metadata.insert("resourceVersion".to_owned(), Value::String(version));
    fields.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(Value::Object(fields))
}

/// Returns the fields of an object, or says what it is instead.
fn fields(object: Value) -> Result<Map<String, Value>> {
    match object {
        Value::Object(fields) => Ok(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(format!("{object} is no object").into())
        }
    }
}

/// What is wrong with a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, as people write it: `spec.replicas`; `None` for the primary as a whole.
    pub field: Option<String>,
    /// What was found, and what would be right: it is shown in the status and in an Event.
    pub message: String,
}

impl Problem {
    /// Returns what is wrong with a field, such as `spec.replicas`.
    pub fn at(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: message.into() }
    }

    /// Returns what is wrong with the primary as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Self { field: None, message: message.into() }
    }
}
