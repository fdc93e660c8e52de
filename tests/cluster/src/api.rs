//! Decides how one request to the API server is sent, and what its answer means.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::identity::User;

/// How long one request may take.
const LIMIT: Duration = Duration::from_mins(1);
/// The user agent, unless [`Api::with_user_agent`] sets another one.
const USER_AGENT: &str = concat!("capstan-cluster/", env!("CARGO_PKG_VERSION"));
/// An answer with all objects of a large benchmark is larger than the client's own limit.
const LARGEST_ANSWER: u64 = 1 << 30;

/// A blocking client of the API server for one user. Cloning is cheap and shares connections.
#[derive(Clone, Debug)]
pub struct Api {
    agent: Agent,
    url: Arc<str>,
    token: Arc<str>,
    user_agent: Arc<str>,
}

/// An operation at a path.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// Read an object or a list.
    Get,
    /// Create an object; the path is that of its kind.
    Create(&'a Value),
    /// Replace an object.
    Replace(&'a Value),
    /// Server-side apply, with force.
    Apply {
        /// The field manager.
        manager: &'a str,
        /// The wanted fields, with `apiVersion`, `kind` and `metadata.name`.
        object: &'a Value,
    },
    /// Merge patch: `null` removes a field.
    Merge(&'a Value),
    /// JSON patch: a list of operations.
    JsonPatch(&'a Value),
    /// Delete an object, its dependents afterwards.
    Delete,
}

/// An answer of the API server, whatever its code.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The HTTP code.
    pub code: u16,
    /// The body; a text if it is not JSON.
    pub body: Value,
}

/// The reason why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server refused the request.
    #[error("{method} {path}: {code}: {message}")]
    Refused {
        /// The HTTP method.
        method: &'static str,
        /// The path.
        path: String,
        /// The HTTP code.
        code: u16,
        /// The `reason` of the status, such as `AlreadyExists`.
        reason: String,
        /// The `message` of the status, or the whole body.
        message: String,
    },
    /// The answer is missing or incomplete.
    #[error("{method} {path}")]
    Broken {
        /// The HTTP method.
        method: &'static str,
        /// The path.
        path: String,
        /// The error of the connection.
        source: Box<ureq::Error>,
    },
}

impl ApiError {
    /// Returns the HTTP code; `None` if there was no answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Broken { .. } => None,
        }
    }
}

impl Api {
    /// Returns a client that trusts only the authority in `ca`.
    pub(crate) fn new(url: &str, ca: &Path, user: &User) -> anyhow::Result<Self> {
        let pem = fs::read(ca).with_context(|| format!("read {}", ca.display()))?;
        let mut roots = Vec::<Certificate<'static>>::new();
        for item in parse_pem(&pem) {
            if let PemItem::Certificate(certificate) = item? {
                roots.push(certificate);
            }
        }
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(LIMIT))
            .build()
            .new_agent();
        Ok(Self { agent, url: url.into(), token: user.token.as_str().into(), user_agent: USER_AGENT.into() })
    }

    /// Returns the same client under another user agent, by which the audit log can tell its requests.
    pub fn with_user_agent(&self, user_agent: &str) -> Self {
        Self { user_agent: user_agent.into(), ..self.clone() }
    }

    /// Returns the object or list at `path`.
    ///
    /// # Errors
    /// If there is no such object, or it may not be read.
    pub fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.call(path, Call::Get)
    }

    /// Returns the object at `path`; `None` if there is none.
    ///
    /// # Errors
    /// If it may not be read.
    pub fn find(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.get(path) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates `object` and returns it as stored; `path` is that of its kind.
    ///
    /// # Errors
    /// If the API server refuses.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.call(path, Call::Create(object))
    }

    /// Applies `object` by server-side apply, with force, and returns it as stored.
    ///
    /// # Errors
    /// If the API server refuses.
    pub fn apply(&self, path: &str, manager: &str, object: &Value) -> Result<Value, ApiError> {
        self.call(path, Call::Apply { manager, object })
    }

    /// Merges `patch` into the object and returns it as stored.
    ///
    /// # Errors
    /// If the API server refuses.
    pub fn merge(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        self.call(path, Call::Merge(patch))
    }

    /// Deletes the object.
    ///
    /// # Errors
    /// If there is no such object, or the API server refuses.
    pub fn delete(&self, path: &str) -> Result<Value, ApiError> {
        self.call(path, Call::Delete)
    }

    /// Makes a call and returns the answer's body.
    ///
    /// # Errors
    /// [`ApiError::Refused`] for any code but those of success.
    pub fn call(&self, path: &str, call: Call<'_>) -> Result<Value, ApiError> {
        let Reply { code, body } = self.send(path, call)?;
        if (200..300).contains(&code) {
            return Ok(body);
        }
        let text = |field: &str| body.get(field).and_then(Value::as_str).map(str::to_owned);
        Err(ApiError::Refused {
            method: call.method(),
            path: path.to_owned(),
            code,
            reason: text("reason").unwrap_or_default(),
            message: text("message").unwrap_or_else(|| body.to_string()),
        })
    }

    /// Makes a call and returns the answer whatever its code.
    ///
    /// # Errors
    /// Only [`ApiError::Broken`].
    pub fn send(&self, path: &str, call: Call<'_>) -> Result<Reply, ApiError> {
        self.exchange(path, call).map_err(|source| ApiError::Broken {
            method: call.method(),
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    fn exchange(&self, path: &str, call: Call<'_>) -> Result<Reply, ureq::Error> {
        let request = Request::builder()
            .method(call.method())
            .uri(format!("{}{path}{}", self.url, call.query(path)))
            .header("authorization", format!("Bearer {}", self.token))
            .header("user-agent", &*self.user_agent)
            .header("accept", "application/json");
        let response = match call.body() {
            Some((kind, body)) => self.agent.run(request.header("content-type", kind).body(body)?),
            None => self.agent.run(request.body(())?),
        };
        read(response?)
    }
}

fn read(response: Response<ureq::Body>) -> Result<Reply, ureq::Error> {
    let code = response.status().as_u16();
    let bytes = response.into_body().into_with_config().limit(LARGEST_ANSWER).read_to_vec()?;
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    Ok(Reply { code, body })
}

// === impl Call ===

impl Call<'_> {
    fn method(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Create(_) => "POST",
            Self::Replace(_) => "PUT",
            Self::Apply { .. } | Self::Merge(_) | Self::JsonPatch(_) => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Returns the body with its content type.
    fn body(self) -> Option<(&'static str, String)> {
        match self {
            Self::Get | Self::Delete => None,
            Self::Create(object) | Self::Replace(object) => Some(("application/json", object.to_string())),
            Self::Apply { object, .. } => Some(("application/apply-patch+yaml", object.to_string())),
            Self::Merge(patch) => Some(("application/merge-patch+json", patch.to_string())),
            Self::JsonPatch(patch) => Some(("application/json-patch+json", patch.to_string())),
        }
    }

    /// Returns the query that the call adds to the path.
    fn query(self, path: &str) -> String {
        let joint = if path.contains('?') { '&' } else { '?' };
        match self {
            Self::Apply { manager, .. } => format!("{joint}fieldManager={manager}&force=true"),
            Self::Get | Self::Create(_) | Self::Replace(_) | Self::Merge(_) | Self::JsonPatch(_) | Self::Delete => {
                String::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apply_names_its_manager_beside_what_the_path_asks_for() {
        let object = json!({});
        let apply = Call::Apply { manager: "m", object: &object };
        assert_eq!(
            [apply.query("/a"), apply.query("/a?dryRun=All")],
            ["?fieldManager=m&force=true", "&fieldManager=m&force=true"]
        );
    }
}
