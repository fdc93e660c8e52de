//! Decides what a request asks for: which verb, at which kind and object, with which options.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::decode::Validation;
use crate::status::Refusal;
use crate::wrong::Wrong;

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Counts the requests of a model, from 1.
    pub number: u64,
    /// The HTTP method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query.
    pub query: BTreeMap<String, String>,
    /// The body.
    pub body: Bytes,
    /// The user in whose name it is made.
    pub user: String,
    /// The user agent, up to the first `/`.
    pub agent: String,
    /// The content type, without parameters.
    pub content: String,
}

/// The kind and object that a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// `v1`, `apps/v1`.
    pub(crate) api_version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Place {
    /// Returns the group; it is empty for the kinds of `v1`.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// How a write is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) manager: String,
    pub(crate) force: bool,
    pub(crate) dry_run: bool,
    pub(crate) validation: Validation,
}

/// The user of requests that name none.
const ADMIN: &str = "admin";

impl Asked {
    pub(crate) fn read(number: u64, head: &Parts, body: Bytes) -> Self {
        let query = head.uri.query().unwrap_or_default();
        let agent = text(&head.headers, "user-agent").split('/').next().unwrap_or_default().to_owned();
        let content = text(&head.headers, "content-type").split(';').next().unwrap_or_default().trim().to_owned();
        let user = text(&head.headers, "impersonate-user");
        Self {
            number,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            body,
            user: if user.is_empty() { ADMIN.to_owned() } else { user.to_owned() },
            agent,
            content,
        }
    }

    /// Returns the body as JSON; `None` if it is not JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Returns true if it is a get, a list or a watch; none of these changes anything.
    pub fn reads(&self) -> bool {
        self.method == Method::GET
    }

    /// Returns true if it is a watch.
    pub fn watches(&self) -> bool {
        self.reads() && self.is("watch")
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self.parameter(name), Some("true" | "1"))
    }

    /// Returns the verb as RBAC has it.
    pub(crate) fn verb(&self, place: &Place) -> &'static str {
        match (self.method.as_str(), &place.name) {
            ("GET", _) if self.is("watch") => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", None) => "deletecollection",
            ("DELETE", Some(_)) => "delete",
            _ => "unknown",
        }
    }

    /// Returns the place of its path; `None` if the path leads to no kind.
    pub(crate) fn place(&self) -> Option<Place> {
        let mut parts = self.path.trim_matches('/').split('/').map(str::to_owned);
        let api_version = match parts.next()?.as_str() {
            "api" => parts.next()?,
            "apis" => format!("{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<String> = parts.collect();
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let core = api_version == "v1";
        let place = |namespace: Option<&str>, plural: &str, name: Option<&&str>, subresource: Option<&&str>| Place {
            api_version: api_version.clone(),
            plural: plural.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(|name| (*name).to_owned()),
            subresource: subresource.map(|name| (*name).to_owned()),
        };
        match rest.as_slice() {
            ["namespaces", name] if core => Some(place(None, "namespaces", Some(name), None)),
            ["namespaces", name, part @ ("status" | "finalize")] if core => {
                Some(place(None, "namespaces", Some(name), Some(part)))
            }
            ["namespaces", namespace, plural, rest @ ..] if rest.len() <= 2 => {
                Some(place(Some(namespace), plural, rest.first(), rest.get(1)))
            }
            [plural, rest @ ..] if rest.len() <= 2 => Some(place(None, plural, rest.first(), rest.get(1))),
            _ => None,
        }
    }

    /// Returns the options of a write.
    ///
    /// # Errors
    /// If one is unknown, or does not fit the others.
    pub(crate) fn options(&self, verb: &str) -> Result<Options, Refusal> {
        let validation = match self.parameter("fieldValidation") {
            None | Some("Warn") => Validation::Warn,
            Some("Strict") => Validation::Strict,
            Some("Ignore") => Validation::Ignore,
            Some(other) => {
                let wrong = Wrong::unsupported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
                return Err(Refusal::options(kind_of_options(verb), &wrong));
            }
        };
        let applies = self.content.starts_with("application/apply-patch");
        let manager = self.parameter("fieldManager");
        if applies && manager.is_none() {
            let wrong = Wrong::required("fieldManager", "is required for apply patch");
            return Err(Refusal::options("PatchOptions", &wrong));
        }
        if !applies && self.query.contains_key("force") && verb == "patch" {
            let wrong = Wrong::forbidden("force", "may not be specified for non-apply patch");
            return Err(Refusal::options("PatchOptions", &wrong));
        }
        let manager = manager.unwrap_or(&self.agent);
        Ok(Options {
            manager: if manager.is_empty() { "unknown".to_owned() } else { manager.to_owned() },
            force: self.is("force"),
            dry_run: self.parameter("dryRun") == Some("All"),
            validation,
        })
    }
}

fn kind_of_options(verb: &str) -> &'static str {
    match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        _ => "PatchOptions",
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_kinds_and_objects() {
        let place = |api_version: &str, plural: &str, [namespace, name, subresource]: [&str; 3]| {
            let [namespace, name, subresource] =
                [namespace, name, subresource].map(|part| Some(part.to_owned()).filter(|part| !part.is_empty()));
            Some(Place { api_version: api_version.to_owned(), plural: plural.to_owned(), namespace, name, subresource })
        };
        let table = [
            ("/api/v1/configmaps?a=b", place("v1", "configmaps", ["", "", ""])),
            ("/api/v1/namespaces/n/configmaps/a", place("v1", "configmaps", ["n", "a", ""])),
            ("/apis/apps/v1/namespaces/n/deployments/a/status", place("apps/v1", "deployments", ["n", "a", "status"])),
            ("/api/v1/namespaces/n", place("v1", "namespaces", ["", "n", ""])),
            ("/api/v1/namespaces/n/status", place("v1", "namespaces", ["", "n", "status"])),
            ("/apis/x.dev/v1/things/a", place("x.dev/v1", "things", ["", "a", ""])),
            ("/api/v1", None),
            ("/version", None),
        ];
        for (path, expected) in table {
            let request = http::Request::builder().uri(path).body(()).unwrap();
            let asked = Asked::read(1, &request.into_parts().0, Bytes::new());
            assert_eq!(asked.place(), expected, "{path}");
        }
    }
}
