//! Talks to the API server: the only module that sends writes, and the one place where its answers become objects or errors.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_core::cluster::{Cluster, Deletion, Error, Propagation, Reason, Target, Verb, Write};
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::RwLock;
use serde::Deserialize;

pub mod recorder;

/// How we name ourselves to the API server.
pub const USER_AGENT: &str = concat!("capstan/", env!("CARGO_PKG_VERSION"));

/// A request that has no answer after this time has failed. Watches are not bound by it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How often a request is sent again that the API server was too busy for (429).
const BUSY_TRIES: u32 = 5;

/// The API server of one cluster.
pub struct ApiServer {
    client: kube::Client,
    kinds: RwLock<HashMap<Gvk, Kind>>,
    managers: RwLock<Managers>,
}

/// What discovery says of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group, version and kind.
    pub gvk: Gvk,
    /// The name in paths: `configmaps`.
    pub plural: Arc<str>,
    /// Where its objects live.
    pub scope: Scope,
}

/// What a request is about, for messages: `apply v1 ConfigMap default/a`.
struct About<'a> {
    verb: &'a str,
    gvk: &'a Gvk,
    key: Option<&'a ObjectRef>,
}

impl ApiServer {
    /// Returns a client of this cluster that keeps the shares of `managers` when it cuts managedFields off.
    pub fn new(client: kube::Client, managers: Managers) -> Self {
        Self {
            client,
            kinds: RwLock::default(),
            managers: RwLock::new(managers),
        }
    }

    /// Keeps the shares of one more field manager from now on. Says whether it is new: then what is cached lacks them.
    pub fn keep_shares_of(&self, manager: &str) -> bool {
        let mut managers = self.managers.write();
        let new = !managers.contains(manager);
        if new {
            *managers = managers.with(manager);
        }
        new
    }

    /// Returns the field managers whose shares are kept.
    pub fn managers(&self) -> Managers {
        self.managers.read().clone()
    }

    /// Returns what discovery says of a kind, asking the API server the first time.
    ///
    /// # Errors
    /// [`Reason::UnknownKind`] if the API server does not serve it; otherwise as the request failed.
    pub async fn resolve(&self, gvk: &Gvk) -> Result<Kind, Error> {
        if let Some(kind) = self.kinds.read().get(gvk) {
            return Ok(kind.clone());
        }
        let about = About {
            verb: "discover",
            gvk,
            key: None,
        };
        let path = group_path(gvk);
        let unknown = || Error {
            reason: Reason::UnknownKind,
            code: 404,
            message: format!(
                "the API server does not serve {gvk}: install its CustomResourceDefinition, or correct the manifest"
            ),
        };
        let text = match self.request(&about, Method::GET, &path, None).await {
            Ok(text) => text,
            Err(error) if error.code == 404 => return Err(unknown()),
            Err(error) => return Err(error),
        };
        let list: ResourceList = serde_json::from_slice(&text).map_err(|e| about.broken(&e))?;
        let mut kinds = self.kinds.write();
        for resource in list.resources.into_iter().filter(|r| !r.name.contains('/')) {
            let scope = if resource.namespaced {
                Scope::Namespaced
            } else {
                Scope::Cluster
            };
            let found = Gvk {
                kind: resource.kind.into(),
                ..gvk.clone()
            };
            kinds.insert(
                found.clone(),
                Kind {
                    gvk: found,
                    plural: resource.name.into(),
                    scope,
                },
            );
        }
        kinds.get(gvk).cloned().ok_or_else(unknown)
    }

    /// Sends a GET and returns the answer as it comes in.
    pub(crate) async fn stream(&self, kind: &Kind, verb: &str, path: &str) -> Result<Body, Error> {
        let about = About {
            verb,
            gvk: &kind.gvk,
            key: None,
        };
        let answer = self.send(&about, Method::GET, path, None);
        let response = tokio::time::timeout(TIMEOUT, answer).await;
        Ok(response.unwrap_or_else(|_| Err(about.late()))?.into_body())
    }

    /// Sends a request and returns the whole body of a successful answer.
    async fn request(
        &self,
        about: &About<'_>,
        method: Method,
        path: &str,
        body: Option<(&'static str, &str)>,
    ) -> Result<Bytes, Error> {
        let exchange = async {
            let response = self.send(about, method, path, body).await?;
            let body = response.into_body().collect().await;
            body.map(http_body_util::Collected::to_bytes)
                .map_err(|e| about.unreachable(&e))
        };
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(about.late()))
    }

    /// Sends a request; again, for a while, if the API server is too busy.
    async fn send(
        &self,
        about: &About<'_>,
        method: Method,
        path: &str,
        body: Option<(&'static str, &str)>,
    ) -> Result<Response<Body>, Error> {
        let mut tries = 0;
        loop {
            let mut request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header("user-agent", USER_AGENT);
            request = request.header("accept", "application/json");
            let payload = match body {
                Some((kind, text)) => {
                    request = request.header("content-type", kind);
                    Body::from(text.as_bytes().to_vec())
                }
                None => Body::empty(),
            };
            let request = request.body(payload).map_err(|e| about.invalid(&e))?;
            let response = self
                .client
                .send(request)
                .await
                .map_err(|e| about.unreachable(&chain(&e)))?;
            if response.status().is_success() {
                return Ok(response);
            }
            tries += 1;
            if response.status() == StatusCode::TOO_MANY_REQUESTS && tries < BUSY_TRIES {
                tokio::time::sleep(retry_after(&response)).await;
                continue;
            }
            return Err(about.refused(response).await);
        }
    }

    async fn read(
        &self,
        about: &About<'_>,
        method: Method,
        path: &str,
        body: Option<(&'static str, &str)>,
    ) -> Result<Object, Error> {
        let bytes = self.request(about, method, path, body).await?;
        let text = std::str::from_utf8(&bytes).map_err(|e| about.broken(&e))?;
        let managers = self.managers();
        Object::parse(text, about.gvk, &managers).map_err(|e| about.broken(&e))
    }

    async fn carry_out(&self, write: Write) -> Result<Option<Object>, Error> {
        let Write { target, verb } = write;
        fits(&target)?;
        let kind = self.resolve(&target.gvk).await?;
        let about = About {
            verb: word(&verb),
            gvk: &target.gvk,
            key: Some(&target.key),
        };
        let path = kind.object_path(&target);
        let (method, path, manager, content) = match &verb {
            Verb::Delete(deletion) => return self.delete(&about, &path, deletion).await,
            Verb::Create { manager, .. } => (
                Method::POST,
                kind.create_path(&target),
                manager,
                "application/json",
            ),
            Verb::Replace { manager, .. } => (Method::PUT, path, manager, "application/json"),
            Verb::Apply { manager, .. } => {
                (Method::PATCH, path, manager, "application/apply-patch+yaml")
            }
            Verb::JsonPatch { manager, .. } => {
                (Method::PATCH, path, manager, "application/json-patch+json")
            }
            Verb::MergePatch { manager, .. } => {
                (Method::PATCH, path, manager, "application/merge-patch+json")
            }
        };
        let forced = if matches!(verb, Verb::Apply { .. }) {
            "&force=true"
        } else {
            ""
        };
        let path = format!("{path}?fieldManager={}{forced}", escape(manager));
        match self
            .read(&about, method, &path, Some((content, verb.body())))
            .await
        {
            // What is answered is handed on: it must be what was asked for.
            Ok(object) if *object.key() != target.key => {
                Err(about.broken(&format_args!("it is about {}", object.key())))
            }
            Ok(object) => Ok(Some(object)),
            Err(error) if is_conditional(&verb) => Err(outdated(error)),
            Err(error) => Err(error),
        }
    }

    /// Deletes; the object that is answered while finalizers hold it back is returned (it may be a bare status, too).
    async fn delete(
        &self,
        about: &About<'_>,
        path: &str,
        deletion: &Deletion,
    ) -> Result<Option<Object>, Error> {
        let body = deletion_body(deletion);
        match self
            .request(
                about,
                Method::DELETE,
                path,
                Some(("application/json", &body)),
            )
            .await
        {
            Ok(bytes) => {
                let text = std::str::from_utf8(&bytes).map_err(|e| about.broken(&e))?;
                let managers = self.managers();
                let left = Object::parse(text, about.gvk, &managers).ok();
                Ok(left
                    .filter(|object| object.header().deleting && Some(object.key()) == about.key))
            }
            // KD-9; and what is of a kind that is gone is gone, too.
            Err(error) if matches!(error.reason, Reason::Missing | Reason::UnknownKind) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Cluster for ApiServer {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        self.carry_out(write).boxed()
    }

    fn get<'a>(
        &'a self,
        gvk: &'a Gvk,
        key: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        async move {
            let target = Target::object(gvk.clone(), key.clone());
            fits(&target)?;
            let kind = self.resolve(gvk).await?;
            let about = About {
                verb: "get",
                gvk,
                key: Some(key),
            };
            let path = kind.object_path(&target);
            match self.read(&about, Method::GET, &path, None).await {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.reason == Reason::Missing => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn scope(&self, gvk: &Gvk) -> Option<Scope> {
        self.kinds.read().get(gvk).map(|kind| kind.scope)
    }
}

// === paths ===

impl Kind {
    /// Returns the path of all objects of the kind, in one namespace or in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = group_path(&self.gvk);
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// Returns the name as RBAC and the default finalizer have it: `webpages.sample.capstan.dev`.
    pub fn full_name(&self) -> String {
        if self.gvk.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.gvk.group)
        }
    }

    fn object_path(&self, target: &Target) -> String {
        let path = format!(
            "{}/{}",
            self.path(target.key.namespace.as_deref()),
            target.key.name
        );
        match &target.subresource {
            Some(subresource) => format!("{path}/{subresource}"),
            None => path,
        }
    }

    fn create_path(&self, target: &Target) -> String {
        match target.subresource {
            Some(_) => self.object_path(target),
            None => self.path(target.key.namespace.as_deref()),
        }
    }
}

fn group_path(gvk: &Gvk) -> String {
    let prefix = if gvk.group.is_empty() {
        "/api"
    } else {
        "/apis"
    };
    format!("{prefix}/{}", gvk.api_version())
}

/// Escapes a value for a query.
pub(crate) fn escape(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn deletion_body(deletion: &Deletion) -> String {
    let Deletion {
        propagation,
        uid,
        version,
        grace_seconds,
    } = deletion;
    let policy = propagation.map(|p| match p {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    });
    let mut body = serde_json::json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    let mut set = |field: &str, value: serde_json::Value| {
        if let Some(body) = body.as_object_mut().filter(|_| !value.is_null()) {
            body.insert(field.to_owned(), value);
        }
    };
    set("propagationPolicy", policy.into());
    set("gracePeriodSeconds", (*grace_seconds).into());
    if uid.is_some() || version.is_some() {
        let pairs = [("uid", uid), ("resourceVersion", version)];
        let given = pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
        set("preconditions", serde_json::Value::Object(given.collect()));
    }
    body.to_string()
}

// === errors ===

fn word(verb: &Verb) -> &'static str {
    match verb {
        Verb::Create { .. } => "create",
        Verb::Apply { .. } => "apply",
        Verb::Replace { .. } => "update",
        Verb::JsonPatch { .. } | Verb::MergePatch { .. } => "patch",
        Verb::Delete(_) => "delete",
    }
}

/// Refuses a target that would lead to another path than its own.
fn fits(target: &Target) -> Result<(), Error> {
    let Some((what, text)) = target.misfit() else {
        return Ok(());
    };
    let message = format!("{what} {text:?} can't be part of a path at the API server");
    Err(Error {
        reason: Reason::Invalid,
        code: 0,
        message,
    })
}

/// Whether a write is made upon a version or a state that it names. Documents are compact JSON.
fn is_conditional(verb: &Verb) -> bool {
    match verb {
        Verb::JsonPatch { body, .. } => body.contains("\"op\":\"test\""),
        Verb::Apply { body, .. } | Verb::Replace { body, .. } | Verb::MergePatch { body, .. } => {
            body.contains("\"resourceVersion\":\"")
        }
        Verb::Create { .. } | Verb::Delete(_) => false,
    }
}

/// `FI-4`: a write upon a state that no longer holds is refused with 422, too.
fn outdated(error: Error) -> Error {
    if error.code == 422 {
        Error {
            reason: Reason::Conflict,
            ..error
        }
    } else {
        error
    }
}

fn retry_after(response: &Response<Body>) -> Duration {
    let header = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok());
    let seconds = header.and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds).min(Duration::from_secs(10))
}

/// Returns an error with all its causes, as one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

impl About<'_> {
    fn error(&self, reason: Reason, code: u16, text: &dyn std::fmt::Display) -> Error {
        let Self { verb, gvk, key } = self;
        let message = match key {
            Some(key) => format!("{verb} {gvk} {key}: {text}"),
            None => format!("{verb} {gvk}: {text}"),
        };
        Error {
            reason,
            code,
            message,
        }
    }

    fn unreachable(&self, text: &dyn std::fmt::Display) -> Error {
        self.error(
            Reason::Unreachable,
            0,
            &format_args!("the API server can't be reached: {text}"),
        )
    }

    fn late(&self) -> Error {
        self.unreachable(&format_args!("no answer within {} s", TIMEOUT.as_secs()))
    }

    fn invalid(&self, text: &dyn std::fmt::Display) -> Error {
        self.error(Reason::Invalid, 0, text)
    }

    fn broken(&self, text: &dyn std::fmt::Display) -> Error {
        self.error(
            Reason::Unreachable,
            0,
            &format_args!("the API server's answer can't be read: {text}"),
        )
    }

    /// Turns an answer that is no success into an error.
    async fn refused(&self, response: Response<Body>) -> Error {
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let answer: Status = serde_json::from_slice(&body).unwrap_or_default();
        let text = answer
            .message
            .unwrap_or_else(|| String::from_utf8_lossy(&body).trim().to_owned());
        let absent =
            text.contains("could not find the requested resource") || text == "404 page not found";
        let reason = match status.as_u16() {
            404 if absent => Reason::UnknownKind,
            404 => Reason::Missing,
            409 => Reason::Conflict,
            401 | 403 => Reason::Forbidden,
            400..=499 => Reason::Rejected,
            _ => Reason::Unreachable,
        };
        self.error(
            reason,
            status.as_u16(),
            &format_args!("{text} (HTTP {})", status.as_u16()),
        )
    }
}

#[derive(Default, Deserialize)]
struct Status {
    message: Option<String>,
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}
