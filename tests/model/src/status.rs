//! Decides how a refusal is worded: the `Status` with which the API server answers.

use serde_json::{Value, json};

use crate::kinds::{Kind, full_name};
use crate::wrong::Wrong;

/// A request that is not carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// The HTTP code.
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// The warnings of the answer.
    pub(crate) warnings: Vec<String>,
    /// True if the body is not a `Status`.
    plain: bool,
    /// Where a list may go on, as of the newest version.
    goes_on: Option<Box<str>>,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self { code, reason, message, details: None, warnings: Vec::new(), plain: false, goes_on: None }
    }

    fn about(self, kind: &Kind, name: &str) -> Self {
        self.about_one((&kind.plural, &kind.group), name)
    }

    fn about_one(mut self, (plural, group): (&str, &str), name: &str) -> Self {
        let mut details = json!({ "kind": plural });
        if let Some(details) = details.as_object_mut() {
            let parts = [("group", group), ("name", name)];
            details.extend(
                parts
                    .into_iter()
                    .filter(|(_, text)| !text.is_empty())
                    .map(|(part, text)| (part.to_owned(), text.into())),
            );
        }
        self.details = Some(details);
        self
    }

    /// There is no such object.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.full_name())).about(kind, name)
    }

    /// Nothing is served there.
    pub(crate) fn no_page() -> Self {
        Self { plain: true, ..Self::new(404, "NotFound", "404 page not found\n".to_owned()) }
    }

    /// There is such an object already.
    pub(crate) fn exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.full_name())).about(kind, name)
    }

    /// The object is another one by now.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.full_name());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// The object was changed meanwhile.
    pub(crate) fn outdated(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// Other managers own fields that are applied; each with one path.
    pub(crate) fn owned(conflicts: &[(String, String)]) -> Self {
        let message = if let [(manager, path)] = conflicts {
            format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
        } else {
            let mut lines = Vec::new();
            let mut before = None;
            for (manager, path) in conflicts {
                if before != Some(manager) {
                    lines.push(format!("conflicts with {manager}:"));
                    before = Some(manager);
                }
                lines.push(format!("- {path}"));
            }
            format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
        };
        let cause = |(manager, path): &(String, String)| json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path });
        let causes: Vec<Value> = conflicts.iter().map(cause).collect();
        Self { details: Some(json!({ "causes": causes })), ..Self::new(409, "Conflict", message) }
    }

    /// The object is invalid.
    pub(crate) fn invalid(kind: &Kind, name: &str, wrong: &[Wrong]) -> Self {
        let mut lines = Vec::new();
        for Wrong { field, message, .. } in wrong {
            let line = format!("{field}: {message}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let said = match lines.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let title = if kind.group.is_empty() { kind.name.clone() } else { format!("{}.{}", kind.name, kind.group) };
        let cause =
            |Wrong { kind, field, message }: &Wrong| json!({ "reason": kind, "message": message, "field": field });
        let causes: Vec<Value> = wrong.iter().map(cause).collect();
        let mut refusal = Self::new(422, "Invalid", format!("{title} {name:?} is invalid: {said}")).about(kind, name);
        if let Some(details) = refusal.details.as_mut().and_then(Value::as_object_mut) {
            details.remove("kind");
            let named = Some(kind.name.clone()).filter(|name| !name.is_empty());
            details.extend(named.map(|name| ("kind".to_owned(), name.into())));
            details.insert("causes".to_owned(), causes.into());
        }
        refusal
    }

    /// A patch does not fit.
    pub(crate) fn unfit() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(422, "Invalid", "the server rejected our request due to an error in our request".to_owned())
        }
    }

    /// The version is missing.
    pub(crate) fn unversioned(kind: &Kind, name: &str) -> Self {
        let wrong = Wrong::invalid("metadata.resourceVersion", &Value::from(0), "must be specified for an update");
        // Where other messages have the name of the kind, the API server puts that of the resource here.
        let named = Kind { name: kind.plural.clone(), ..kind.clone() };
        Self::invalid(&named, name, &[wrong])
    }

    /// A condition of a delete does not hold.
    pub(crate) fn condition(kind: &Kind, name: &str, why: &str) -> Self {
        // As above, the other way round.
        let named = Kind { plural: kind.name.clone(), ..kind.clone() };
        Self::conflict(&named, name, why)
    }

    /// Returns the refusal with warnings.
    pub(crate) fn warning(self, warnings: &[String]) -> Self {
        Self { warnings: warnings.to_vec(), ..self }
    }

    /// The options of a request are wrong.
    pub(crate) fn options(options: &str, wrong: &Wrong) -> Self {
        let Wrong { kind, field, message } = wrong;
        Self {
            details: Some(
                json!({ "group": "meta.k8s.io", "kind": options, "causes": [{ "reason": kind, "message": message, "field": field }] }),
            ),
            ..Self::new(422, "Invalid", format!("{options}.meta.k8s.io \"\" is invalid: {field}: {message}"))
        }
    }

    /// The request makes no sense.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    /// An error that the API server has no reason for.
    pub(crate) fn unknown(message: &str) -> Self {
        Self::new(500, "", message.to_owned())
    }

    /// The request is not permitted.
    pub(crate) fn forbidden((plural, group): (&str, &str), name: &str, why: &str) -> Self {
        let full_name = full_name(plural, group);
        let what = if name.is_empty() { full_name } else { format!("{full_name} {name:?}") };
        Self::new(403, "Forbidden", format!("{what} is forbidden: {why}")).about_one((plural, group), name)
    }

    /// No object can be created in this namespace any more.
    pub(crate) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut refusal = Self::forbidden((&kind.plural, &kind.group), name, &why);
        if let Some(details) = refusal.details.as_mut().and_then(Value::as_object_mut) {
            let cause = json!({ "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace" });
            details.insert("causes".to_owned(), json!([cause]));
        }
        refusal
    }

    /// The version is too old.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message.into())
    }

    /// A list is too old to be read on; `goes_on` reads on from there, as of the newest version.
    pub(crate) fn expired_list(goes_on: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";
        Self { goes_on: Some(goes_on.into()), ..Self::expired(message) }
    }

    /// The version is in the future.
    pub(crate) fn too_large(version: u64, now: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {version}, current: {now}");
        Self {
            details: Some(
                json!({ "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }], "retryAfterSeconds": 1 }),
            ),
            ..Self::new(504, "Timeout", message)
        }
    }

    /// The result of a patch can't be read.
    pub(crate) fn of_patch(self, kind: &Kind) -> Self {
        let wrong = Wrong::invalid("patch", &Value::Null, &self.message);
        let unnamed = Kind { name: String::new(), group: String::new(), ..kind.clone() };
        Self::invalid(&unnamed, "", &[wrong])
    }

    /// The kind does not have this verb.
    pub(crate) fn method(kind: &Kind, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {:?}", kind.full_name());
        Self::new(405, "MethodNotAllowed", message).about(kind, "")
    }

    /// The content type is not supported.
    pub(crate) fn media() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type".to_owned())
        }
    }

    /// Nothing is served there, among kinds of the API server's own.
    pub(crate) fn no_resource() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(404, "NotFound", "the server could not find the requested resource".to_owned())
        }
    }

    /// An answer that a test asks for.
    pub(crate) fn asked(code: u16, retry_after: Option<u64>) -> Self {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden"),
            404 => ("NotFound", "the server could not find the requested resource"),
            409 => ("Conflict", "the server reported a conflict"),
            410 => ("Gone", "the resource is gone"),
            422 => ("Invalid", "the server rejected our request due to an error in our request"),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
            _ => ("InternalError", "Internal error occurred: injected"),
        };
        Self {
            details: retry_after.map(|seconds| json!({ "retryAfterSeconds": seconds })),
            ..Self::new(code, reason, message.to_owned())
        }
    }

    /// Returns the body, and whether it is JSON.
    pub(crate) fn body(&self) -> Result<Value, &str> {
        if self.plain {
            return Err(&self.message);
        }
        let mut body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message, "code": self.code });
        if let (Some(token), Some(metadata)) = (&self.goes_on, body.get_mut("metadata")) {
            *metadata = json!({ "continue": token });
        }
        if let Some(body) = body.as_object_mut().filter(|_| !self.reason.is_empty()) {
            body.insert("reason".to_owned(), self.reason.into());
        }
        if let (Some(body), Some(details)) = (body.as_object_mut(), &self.details) {
            body.insert("details".to_owned(), details.clone());
        }
        Ok(body)
    }
}
