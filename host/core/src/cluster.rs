//! Defines the API server as decisions see it: writes as plain data, live reads, and their errors.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::{Gvk, Object, ObjectRef, Scope, is_path_segment};
use crate::patch::Patch;
use crate::text;
use crate::yaml;

/// An object of any kind, or a subresource of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kind of the object.
    pub gvk: Gvk,
    /// The name of the object.
    pub key: ObjectRef,
    /// The subresource, such as `status`; `None` for the object itself.
    pub subresource: Option<Arc<str>>,
}

/// A write, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The object that is written.
    pub target: Target,
    /// The verb, with the body.
    pub verb: Verb,
    /// What becomes of fields that the kind does not have.
    pub validation: FieldValidation,
    /// Whether the body may hold values of a Secret though its kind is another: what the API server says of it is kept back (`DT-4`).
    pub shows_secret: bool,
}

/// What the API server does about fields of a write that it does not know, or that are there twice (`FV-1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = yaml::words)]
pub enum FieldValidation {
    /// It refuses the write.
    #[default]
    Strict,
    /// It drops them, and says so.
    Warn,
    /// It drops them.
    Ignore,
}

/// The verb of a write. Bodies are JSON text. A JSON patch is kept parsed, because its tests decide what an error 422
/// means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create {
        /// The object.
        body: String,
        /// The field manager, recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// Server-side apply.
    Apply {
        /// The fields that this manager owns.
        body: String,
        /// The field manager.
        manager: Arc<str>,
        /// True to take fields from other managers (`RO-1`); otherwise fields of other managers are a conflict.
        force: bool,
    },
    /// PUT.
    Replace {
        /// The object.
        body: String,
        /// The field manager, recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// A JSON patch (RFC 6902).
    JsonPatch {
        /// The list of operations.
        patch: Patch,
        /// The field manager, recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// A JSON merge patch (RFC 7386).
    MergePatch {
        /// The patch.
        body: String,
        /// The field manager, recorded as the owner of the fields.
        manager: Arc<str>,
    },
    /// DELETE. An object that does not exist counts as a success (`KD-9`).
    Delete(Deletion),
}

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// What becomes of owned objects; `None`: the default of the kind.
    pub propagation: Option<Propagation>,
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only this version.
    pub version: Option<String>,
    /// The grace period in seconds; `None`: the default of the kind.
    pub grace_seconds: Option<u32>,
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// They are deleted after their owner.
    Background,
    /// They are deleted before their owner.
    Foreground,
    /// They stay.
    Orphan,
}

/// A request that failed. Worth retrying: all but [`Reason::Invalid`] and, until permissions or CRDs change,
/// [`Reason::Forbidden`] and [`Reason::UnknownKind`]. The retry policy of the controller decides, except about
/// outages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Error {
    /// The reason, on which callers decide.
    pub reason: Reason,
    /// The HTTP status; 0 if there was no answer.
    pub code: u16,
    /// The explanation, with verb, kind and name: one line, bounded. It may quote the object.
    pub message: String,
    /// The names of the fields that the API server calls wrong, without their values; empty if it names none.
    pub fields: String,
    /// Whether the API server says that admission forbids it, or that a field can't be changed, also where what it says is kept back.
    pub says: Says,
    /// How long the API server asks to be left alone (`Retry-After`); `None` if it does not say so.
    pub retry_after: Option<Duration>,
}

/// What of the API server's explanation is decided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Says {
    /// Admission forbids it: a webhook, or a policy.
    pub denied: bool,
    /// A field can't be changed.
    pub immutable: bool,
}

impl Says {
    /// Reads an explanation.
    pub fn of(text: &str) -> Self {
        let denied = ["denied the request", "denied request"].iter().any(|denied| text.contains(denied));
        // Not all that can't be changed is called so: the role of a binding, an address of a service, most of a StatefulSet and a pod.
        let fixed = ["immutable", "cannot change roleRef", "may not change", "for fields other than"];
        Self { denied, immutable: fixed.iter().any(|fixed| text.contains(fixed)) }
    }
}

impl Error {
    /// Returns it without what the API server says of the object, which may quote it.
    #[must_use]
    pub(crate) fn hushed(self) -> Self {
        if quotes_nothing(self.code, &self.message) {
            return self;
        }
        Self { message: kept_back(self.code, &self.fields), ..self }
    }

    /// Returns it for somebody who may not see the object: without what the API server says of that, and admission, which quote it as
    /// they like.
    #[must_use]
    pub(crate) fn unseen(self, gvk: &Gvk, key: &ObjectRef) -> Self {
        if quotes_nothing(self.code, &self.message) {
            return self;
        }
        let (fields, code) = (of_fields(&self.fields), self.code);
        let message = format!(
            "{gvk} {key}: refused{fields} (HTTP {code}); why is told to those who may see the object, which takes `get`"
        );
        Self { message, ..self }
    }
}

/// Whether the text of an object says upon which version it is to be written.
fn names_version(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Body {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: Option<String>,
    }
    serde_json::from_str::<Body>(body)
        .is_ok_and(|body| body.metadata.resource_version.is_some_and(|version| !version.is_empty()))
}

/// Returns true if a refusal with this status is about rights, names or versions alone, whatever the object holds.
pub fn quotes_nothing(code: u16, text: &str) -> bool {
    match code {
        0 | 401 | 404 | 409 | 429 => true,
        // So says RBAC; whatever else forbids it says what it likes.
        403 => !Says::of(text).denied && is_of_rbac(text),
        _ => false,
    }
}

/// Whether it reads like `secrets "a" is forbidden: User "u" cannot patch resource "secrets" in API group "" in the namespace "n"`.
fn is_of_rbac(text: &str) -> bool {
    let rest = text.split_once("is forbidden: User \"").and_then(|(_, user)| user.split_once("\" cannot "));
    rest.is_some_and(|(_, what)| what.contains(" resource \""))
}

/// Returns what is said in place of a refusal that may quote a Secret (`SSA-7`).
pub fn kept_back(code: u16, fields: &str) -> String {
    let fields = of_fields(fields);
    format!("the API server refuses it{fields} (HTTP {code}); what it says may quote a Secret, and is kept back")
}

/// Returns ` for` and the fields, without keys of mappings in them, which come from the object; nothing if there are none.
fn of_fields(fields: &str) -> String {
    let mut depth = 0_u32;
    let named: String = fields
        .chars()
        .filter(|c| {
            depth = if *c == '[' { depth.saturating_add(1) } else { depth };
            let kept = depth == 0;
            depth = if *c == ']' { depth.saturating_sub(1) } else { depth };
            kept
        })
        .collect();
    if named.is_empty() { named } else { format!(" for {named}") }
}

/// The reasons for which a request fails.
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
    /// The answer can't be used: it is too long, or not of the expected form.
    Unusable,
    /// The API server does not serve this kind: its CRD is not installed.
    UnknownKind,
    /// The request itself is not valid, so it was not sent.
    Invalid,
}

/// The API server, as decisions see it.
pub trait Cluster: Send + Sync + 'static {
    /// Sends a write and returns the object as it is afterwards; `None` after a deletion. A conflict is not retried:
    /// the caller reads the object again first.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>>;

    /// Returns the object as a write would leave it, which the API server does not carry out (`TR-1`).
    fn dry_run(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>>;

    /// Returns the object as the API server has it now; `None` if it does not exist.
    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>>;

    /// Returns the same as [`Cluster::get`], but with the shares of all field managers. It needs only the right to
    /// list, which every watch of the kind has.
    fn look<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        self.get(gvk, key)
    }

    /// Returns true if the API server serves a kind, as far as is remembered: it is asked only if nothing is (`WF-11`).
    ///
    /// # Errors
    /// As the request failed: then nothing is known.
    fn serves<'a>(&'a self, gvk: &'a Gvk) -> BoxFuture<'a, Result<bool, Error>> {
        ready(Ok(self.scope(gvk).is_some())).boxed()
    }

    /// Returns the scope of a kind; `None` if the kind is not known. The answer comes from earlier discovery, without
    /// a request.
    fn scope(&self, gvk: &Gvk) -> Option<Scope>;

    /// Returns true if it is known that it does no work for anybody now (`EP-34`).
    fn is_down(&self) -> bool {
        false
    }
}

impl Write {
    /// Returns a write of what shows no Secret, unless its kind is one.
    pub fn new(target: Target, verb: Verb, validation: FieldValidation) -> Self {
        Self { target, verb, validation, shows_secret: false }
    }

    /// Returns a write of the daemon's own, such as of a finalizer: all its fields are known.
    pub fn own(target: Target, verb: Verb) -> Self {
        Self::new(target, verb, FieldValidation::Ignore)
    }

    /// Returns what the API server is asked to do about fields that it does not know (`FV-1`). A whole object is sent as it was read, with
    /// what its kind may not have any more by then: it is not refused for that.
    pub fn validated(&self) -> FieldValidation {
        match (&self.verb, self.validation) {
            (Verb::Replace { .. }, FieldValidation::Strict) => FieldValidation::Warn,
            (_, validation) => validation,
        }
    }
}

impl FieldValidation {
    /// Returns its name in a request.
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Warn => "Warn",
            Self::Ignore => "Ignore",
        }
    }
}

impl Target {
    /// Returns the name and value of the first part of the target that can't be a path segment; `None` if all can.
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

    /// Returns the target for an object itself.
    pub fn object(gvk: Gvk, key: ObjectRef) -> Self {
        Self { gvk, key, subresource: None }
    }

    /// Returns the target for the status of an object.
    pub fn status(gvk: Gvk, key: ObjectRef) -> Self {
        Self { gvk, key, subresource: Some("status".into()) }
    }
}

impl Error {
    /// Returns an error. The message is kept as one line of bounded length, because the API server repeats what it
    /// was sent.
    pub fn new(reason: Reason, code: u16, message: impl AsRef<str>) -> Self {
        let message = message.as_ref();
        let (text, says) = (text::said(message).into_owned(), Says::of(message));
        Self { reason, code, message: text, fields: String::new(), says, retry_after: None }
    }

    /// Returns true if the write was based on an outdated version (`FI-4`).
    pub fn is_conflict(&self) -> bool {
        self.reason == Reason::Conflict
    }

    /// Returns true if the request may have been carried out although it failed: its answer was lost or can't be used.
    pub fn may_be_done(&self) -> bool {
        matches!(self.reason, Reason::Unreachable | Reason::Unusable)
    }

    /// Returns true if the API server can't serve any request now.
    pub fn is_outage(&self) -> bool {
        matches!(self.reason, Reason::Busy | Reason::Unreachable)
    }

    /// Returns true if what was to be applied does not fit its schema, or what is there does not, so that nothing can be applied to it.
    pub fn is_misfit(&self) -> bool {
        self.reason == Reason::Rejected && self.code == 500
    }

    /// Returns true if the API server is there, and has failed at this request: it may do so each time.
    pub fn is_fault(&self) -> bool {
        self.is_outage() && self.code == 500
    }
}

impl Verb {
    /// Returns what it is called in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Apply { .. } => "apply",
            Self::Replace { .. } => "update",
            Self::JsonPatch { .. } | Self::MergePatch { .. } => "patch",
            Self::Delete(_) => "delete",
        }
    }

    /// Returns the body that is sent; empty for a deletion.
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

    /// Returns true if it may be sent again where nobody knows whether it was carried out: twice leads to the same as once, or the second
    /// one is refused because it names what the first has changed.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            Self::Apply { .. } => true,
            Self::Delete(Deletion { uid, version, .. }) => uid.is_some() || version.is_some(),
            Self::Replace { body, .. } | Self::MergePatch { body, .. } => names_version(body),
            Self::Create { .. } | Self::JsonPatch { .. } => false,
        }
    }

    /// Returns true if the API server answers 422 when the object is not as the write expects (`FI-4`): a JSON patch
    /// with a test. Other verbs carry a version or uid, for which the API server answers 409.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn only_what_leads_to_the_same_twice_or_is_refused_the_second_time_may_be_repeated() {
        // EP-34
        let (body, manager) = (|text: &str| text.to_owned(), || Arc::from("web"));
        let patch = |text: &str| Patch::read(text, &mut Budget::of_run()).unwrap();
        let (upon, any) = (r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#, r#"{"metadata":{"name":"a"}}"#);
        let test = r#"[{"op":"test","path":"/metadata/resourceVersion","value":"7"}]"#;
        for (verb, expected) in [
            (Verb::Apply { body: body(any), manager: manager(), force: false }, true),
            (Verb::Replace { body: body(upon), manager: manager() }, true),
            (Verb::Replace { body: body(any), manager: manager() }, false),
            (Verb::Replace { body: body(r#"{"metadata":{"resourceVersion":""}}"#), manager: manager() }, false),
            (Verb::MergePatch { body: body(upon), manager: manager() }, true),
            (Verb::MergePatch { body: body(r#"{"spec":{}}"#), manager: manager() }, false),
            (Verb::Create { body: body(upon), manager: manager() }, false),
            (Verb::JsonPatch { patch: patch(test), manager: manager() }, false),
            (Verb::Delete(Deletion { uid: Some("u".to_owned()), ..Deletion::default() }), true),
            (Verb::Delete(Deletion { version: Some("7".to_owned()), ..Deletion::default() }), true),
            (Verb::Delete(Deletion::default()), false),
        ] {
            assert_eq!(verb.may_be_repeated(), expected, "{verb:?}");
        }
    }
}
