//! What the API server does for a decision: writes as plain data, live reads, and how either can fail.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::object::{Gvk, Object, ObjectRef, Scope, Version, is_path_segment};
use crate::patch::Patch;
use crate::text;

/// An object of any kind, or a subresource of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub gvk: Gvk,
    /// Its name.
    pub key: ObjectRef,
    /// The subresource, such as `status`; none for the object itself.
    pub subresource: Option<Arc<str>>,
}

/// A write, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What is written.
    pub target: Target,
    /// How.
    pub verb: Verb,
}

/// How something is written. Bodies are JSON text; a JSON patch is not, as what it tests says what its refusal means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create {
        /// The object.
        body: String,
        /// Recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// Server-side apply.
    Apply {
        /// The fields that this manager owns.
        body: String,
        /// The field manager.
        manager: Arc<str>,
        /// Whether fields are taken from other managers (`RO-1`); without it, theirs are a conflict.
        force: bool,
    },
    /// PUT.
    Replace {
        /// The object.
        body: String,
        /// Recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// A JSON patch (RFC 6902).
    JsonPatch {
        /// The list of operations.
        patch: Patch,
        /// Recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// A JSON merge patch (RFC 7386).
    MergePatch {
        /// The patch.
        body: String,
        /// Recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// DELETE. An object that is gone already counts as a success (`KD-9`).
    Delete(Deletion),
}

/// The fine print of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// What becomes of owned objects; none = what is usual for the kind.
    pub propagation: Option<Propagation>,
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only this version.
    pub version: Option<String>,
    /// The seconds that it gets for its end; none = what is usual for the kind.
    pub grace_seconds: Option<u32>,
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted before.
    Foreground,
    /// They stay.
    Orphan,
}

/// Why the API server did not do it. Worth retrying: all but [`Reason::Invalid`] and, until somebody changes something,
/// [`Reason::Forbidden`] and [`Reason::UnknownKind`]; the retry policy of the controller decides, except about outages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Error {
    /// The sort of failure: what a program decides on.
    pub reason: Reason,
    /// The HTTP status; 0 if there was no answer.
    pub code: u16,
    /// The explanation, with verb, kind and name: one line, bounded. It may quote the object.
    pub message: String,
    /// The fields that the API server calls wrong, by their names alone; empty if it names none.
    pub fields: String,
}

/// The sorts of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 404: the object does not exist.
    Missing,
    /// 409, or 422 for a JSON patch whose test does not hold.
    Conflict,
    /// 401 or 403.
    Forbidden,
    /// Any other 4xx.
    Rejected,
    /// 429: the API server has too much to do.
    Busy,
    /// No answer, or 5xx.
    Unreachable,
    /// There is an answer, but it can't be used: it is too long, or not what it should be.
    Unusable,
    /// The API server does not serve this kind: its CRD is not installed.
    UnknownKind,
    /// What was to be sent is no valid request.
    Invalid,
}

/// The API server, as decisions see it.
pub trait Cluster: Send + Sync + 'static {
    /// Sends a write and returns the object as it is then; none after a deletion. No retry on conflict: who decides
    /// about that reads again first.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>>;

    /// Returns the object as the API server has it now; none if it does not exist.
    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>>;

    /// Returns the same, with the shares of all field managers, by the right to list that whoever watches the kind has.
    fn look<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        self.get(gvk, key)
    }

    /// Returns whether objects of this kind live in a namespace; none if the kind is not known. Answered from what
    /// discovery has found before, without a request.
    fn scope(&self, gvk: &Gvk) -> Option<Scope>;
}

impl Target {
    /// Returns the part of the target that can't be part of a path, if there is one: its name and value.
    pub fn misfit(&self) -> Option<(&'static str, &str)> {
        let Self { gvk, key, subresource } = self;
        let parts = [
            ("the API group", Some(&*gvk.group).filter(|group| !group.is_empty())),
            ("the API version", Some(&*gvk.version)),
            ("the namespace", key.namespace.as_deref()),
            ("the name", Some(&*key.name)),
            ("the subresource", subresource.as_deref()),
        ];
        let given = parts.into_iter().filter_map(|(what, text)| Some((what, text?)));
        given.into_iter().find(|(_, text)| !is_path_segment(text))
    }

    /// Returns an object itself.
    pub fn object(gvk: Gvk, key: ObjectRef) -> Self {
        Self { gvk, key, subresource: None }
    }

    /// Returns the status of an object.
    pub fn status(gvk: Gvk, key: ObjectRef) -> Self {
        Self { gvk, key, subresource: Some("status".into()) }
    }
}

impl Error {
    /// Returns an error. The message is kept as one line of bounded length: the API server repeats what it was sent.
    pub fn new(reason: Reason, code: u16, message: impl AsRef<str>) -> Self {
        Self { reason, code, message: text::said(message.as_ref()).into_owned(), fields: String::new() }
    }

    /// Whether the version that was written upon is out of date (`FI-4`).
    pub fn is_conflict(&self) -> bool {
        self.reason == Reason::Conflict
    }

    /// Whether it is the API server that can't do its work now, whatever is asked of it.
    pub fn is_outage(&self) -> bool {
        matches!(self.reason, Reason::Busy | Reason::Unreachable)
    }
}

impl Verb {
    /// Returns the document that is sent; empty for a deletion.
    pub fn body(&self) -> Cow<'_, str> {
        match self {
            Self::Create { body, .. }
            | Self::Apply { body, .. }
            | Self::Replace { body, .. }
            | Self::MergePatch { body, .. } => body.into(),
            Self::JsonPatch { patch, .. } => patch.text().into(),
            Self::Delete(_) => "".into(),
        }
    }

    /// Whether the API server refuses it with 422 unless the object is as it says (`FI-4`). Versions and uids that other verbs
    /// carry are a conflict by 409.
    pub fn tests(&self) -> bool {
        match self {
            Self::JsonPatch { patch, .. } => patch.tests(),
            Self::Create { .. }
            | Self::Apply { .. }
            | Self::Replace { .. }
            | Self::MergePatch { .. }
            | Self::Delete(_) => false,
        }
    }

    /// Returns the verb as RBAC names it.
    pub fn rbac(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Apply { .. } | Self::JsonPatch { .. } | Self::MergePatch { .. } => "patch",
            Self::Replace { .. } => "update",
            Self::Delete(_) => "delete",
        }
    }
}

impl Deletion {
    /// Returns the deletion of exactly the version that was seen.
    pub fn of_version(uid: &str, version: Version) -> Self {
        Self { uid: Some(uid.to_owned()), version: Some(version.to_string()), ..Self::default() }
    }
}
