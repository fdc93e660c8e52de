//! Talks to the API server: the only module that sends writes, and the one place where its answers become objects or errors.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_core::cluster::{Cluster, Deletion, Error, Propagation, Reason, Target, Verb, Write};
use capstan_core::manifest::ServiceAccount;
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope};
use capstan_core::text::{LONGEST, kept, said_within};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

pub mod meter;
pub mod pulse;
pub mod recorder;
mod review;

use crate::pause::Chance;
use pulse::Pulse;

/// How we name ourselves to the API server.
pub const USER_AGENT: &str = concat!("capstan/", env!("CARGO_PKG_VERSION"));

/// A request that has no answer after this time has failed. Watches are not bound by it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest answer about one object, and the longest list of kinds. An object is never longer than 3 MiB.
const ANSWER: usize = 16 << 20;

/// The longest explanation of a refusal.
const REFUSAL: usize = 64 << 10;

/// How often a request is sent again that the API server was too busy for (429).
const BUSY_TRIES: u32 = 5;

/// The API server of one cluster.
pub struct ApiServer {
    client: kube::Client,
    /// Where connections are kept going: runs, which ask for requests, must not hold them up.
    runtime: Handle,
    kinds: RwLock<HashMap<Gvk, Kind>>,
    managers: RwLock<Managers>,
    pulse: Pulse,
    chance: Chance,
}

/// Who a request is sent for. There is no request without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The daemon itself.
    Daemon,
    /// An operator, in the name of this user.
    Operator(HeaderValue),
}

/// The API server, as one identity uses it.
#[derive(Clone)]
pub struct Access {
    api: Arc<ApiServer>,
    who: Identity,
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

/// What a request is about, for messages: `apply v1 ConfigMap default/a`; and who sends it.
struct About<'a> {
    who: &'a Identity,
    verb: &'a str,
    gvk: &'a Gvk,
    key: Option<&'a ObjectRef>,
}

impl ApiServer {
    /// Returns a client of this cluster that keeps the shares of `managers` when it cuts managedFields off. Its connections
    /// belong to the runtime that this is called on.
    pub fn new(client: kube::Client, managers: Managers) -> Self {
        Self {
            client,
            runtime: Handle::current(),
            kinds: RwLock::default(),
            managers: RwLock::new(managers),
            pulse: Pulse::default(),
            chance: Chance::default(),
        }
    }

    /// Lets the pauses of whoever asks it differ by this.
    pub fn pausing(self, chance: Chance) -> Self {
        Self { chance, ..self }
    }

    /// Returns by what pauses differ.
    pub fn chance(&self) -> &Chance {
        &self.chance
    }

    /// Returns what is heard of the API server.
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
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

    /// Returns what discovery has said of a kind; none if nobody has asked.
    pub fn known(&self, gvk: &Gvk) -> Option<Kind> {
        self.kinds.read().get(gvk).cloned()
    }

    /// Returns what discovery says of a kind, asking the API server the first time.
    ///
    /// # Errors
    /// [`Reason::UnknownKind`] if the API server does not serve it; otherwise as the request failed.
    pub async fn resolve(&self, gvk: &Gvk) -> Result<Kind, Error> {
        if let Some(kind) = self.kinds.read().get(gvk) {
            return Ok(kind.clone());
        }
        let about = About { who: &Identity::Daemon, verb: "discover", gvk, key: None };
        let path = group_path(gvk);
        let unknown = || {
            let message = format!(
                "the API server does not serve {gvk}: install its CustomResourceDefinition, or correct the manifest"
            );
            Error::new(Reason::UnknownKind, 404, message)
        };
        let text = match self.request(&about, Method::GET, &path, None).await {
            Ok(text) => text,
            Err(error) if matches!(error.reason, Reason::Missing | Reason::UnknownKind) => return Err(unknown()),
            Err(error) => return Err(error),
        };
        let list: ResourceList = serde_json::from_slice(&text).map_err(|e| about.broken(&e))?;
        let mut kinds = self.kinds.write();
        for resource in list.resources.into_iter().filter(|r| !r.name.contains('/')) {
            let scope = if resource.namespaced { Scope::Namespaced } else { Scope::Cluster };
            let found = Gvk { kind: resource.kind.into(), ..gvk.clone() };
            kinds.insert(found.clone(), Kind { gvk: found, plural: resource.name.into(), scope });
        }
        kinds.get(gvk).cloned().ok_or_else(unknown)
    }

    /// Sends a GET and returns the answer as it comes in.
    pub(crate) async fn stream(&self, kind: &Kind, verb: &str, path: &str) -> Result<Body, Error> {
        let about = About { who: &Identity::Daemon, verb, gvk: &kind.gvk, key: None };
        let answer = self.send(&about, Method::GET, path, None);
        let response = self.in_time(&about, pulse::Kind::Read, answer).await;
        Ok(response?.into_body())
    }

    /// Waits for an answer, though not for ever.
    async fn in_time<T>(
        &self,
        about: &About<'_>,
        access: pulse::Kind,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let in_time = async {
            let answer = tokio::time::timeout(TIMEOUT, answer).await;
            answer.unwrap_or_else(|_| Err(about.late()))
        };
        let lost = || about.unreachable(&"it was away, and may not answer any more");
        self.pulse.follow(access, in_time, lost).await
    }

    /// Sends a request and returns the whole body of a successful answer.
    async fn request(
        &self,
        about: &About<'_>,
        method: Method,
        path: &str,
        body: Option<(&'static str, &str)>,
    ) -> Result<Bytes, Error> {
        let access = if method == Method::GET { pulse::Kind::Read } else { pulse::Kind::Write };
        self.whole(about, access, self.send(about, method, path, body)).await
    }

    /// Waits for the whole body of an answer, though not for ever.
    async fn whole(
        &self,
        about: &About<'_>,
        access: pulse::Kind,
        answer: impl Future<Output = Result<Response<Body>, Error>>,
    ) -> Result<Bytes, Error> {
        let exchange = async {
            let body = collect(answer.await?.into_body(), ANSWER).await;
            body.map_err(|broken| match broken {
                Broken::Long => about.broken(&format_args!("it is longer than {ANSWER} bytes")),
                Broken::Off(why) => about.unreachable(&why),
            })
        };
        self.in_time(about, access, exchange).await
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
            let mut request = Request::builder().method(method.clone()).uri(path).header("user-agent", USER_AGENT);
            request = request.header("accept", "application/json");
            // This header alone: with the groups left out, the API server fills in those of the service account.
            if let Identity::Operator(user) = about.who {
                request = request.header("impersonate-user", user.clone());
            }
            let payload = match body {
                Some((kind, text)) => {
                    request = request.header("content-type", kind);
                    Body::from(text.as_bytes().to_vec())
                }
                None => Body::empty(),
            };
            let request = request.body(payload).map_err(|e| about.invalid(&e))?;
            let client = self.client.clone();
            // A connection lives where the request that opens it is polled.
            let exchange = self.runtime.spawn(async move { client.send(request).await });
            let response = AbortOnDropHandle::new(exchange).await;
            let response = response.map_err(|e| about.unreachable(&e))?;
            let response = response.map_err(|e| about.unreachable(&chain(&e)))?;
            if response.status().is_success() {
                return Ok(response);
            }
            tries += 1;
            if response.status() == StatusCode::TOO_MANY_REQUESTS && tries < BUSY_TRIES {
                // Never sooner than it asks for, and not all at once.
                let after = retry_after(&response);
                tokio::time::sleep(after + self.chance.jitter(after) / 2).await;
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

    async fn carry_out(&self, who: &Identity, write: Write) -> Result<Option<Object>, Error> {
        let Write { target, verb } = write;
        fits(&target)?;
        let kind = self.resolve(&target.gvk).await?;
        let about = About { who, verb: word(&verb), gvk: &target.gvk, key: Some(&target.key) };
        let path = kind.object_path(&target);
        let (method, path, manager, content) = match &verb {
            Verb::Delete(deletion) => return self.delete(&about, &path, deletion).await,
            Verb::Create { manager, .. } => (Method::POST, kind.create_path(&target), manager, "application/json"),
            Verb::Replace { manager, .. } => (Method::PUT, path, manager, "application/json"),
            Verb::Apply { manager, .. } => (Method::PATCH, path, manager, "application/apply-patch+yaml"),
            Verb::JsonPatch { manager, .. } => (Method::PATCH, path, manager, "application/json-patch+json"),
            Verb::MergePatch { manager, .. } => (Method::PATCH, path, manager, "application/merge-patch+json"),
        };
        let forced = if matches!(verb, Verb::Apply { force: true, .. }) { "&force=true" } else { "" };
        let path = format!("{path}?fieldManager={}{forced}", escape(manager));
        match self.read(&about, method, &path, Some((content, &verb.body()))).await {
            // What is answered is handed on: it must be what was asked for.
            Ok(object) if *object.key() != target.key => {
                Err(about.broken(&format_args!("it is about {}", object.key())))
            }
            Ok(object) => Ok(Some(object)),
            // FI-4. What is invalid is refused with 422, too, and names a field.
            Err(mut error) if error.code == 422 && verb.tests() && error.fields.is_empty() => {
                error.reason = Reason::Conflict;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes; the object that is answered while finalizers hold it back is returned (it may be a bare status, too).
    async fn delete(&self, about: &About<'_>, path: &str, deletion: &Deletion) -> Result<Option<Object>, Error> {
        let body = deletion_body(deletion);
        match self.request(about, Method::DELETE, path, Some(("application/json", &body))).await {
            Ok(bytes) => {
                let text = std::str::from_utf8(&bytes).map_err(|e| about.broken(&e))?;
                let managers = self.managers();
                let left = Object::parse(text, about.gvk, &managers).ok();
                Ok(left.filter(|object| object.header().deleting && Some(object.key()) == about.key))
            }
            // KD-9; and what is of a kind that is gone is gone, too.
            Err(error) if matches!(error.reason, Reason::Missing | Reason::UnknownKind) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

// === impl Identity ===

impl Identity {
    /// Returns who acts in the name of a service account; the daemon if there is none. `own` is the daemon's namespace.
    pub fn of(account: Option<&ServiceAccount>, own: &str) -> Self {
        let Some(ServiceAccount { name, namespace }) = account else {
            return Self::Daemon;
        };
        let namespace = namespace.as_deref().unwrap_or(own);
        let user = HeaderValue::try_from(format!("system:serviceaccount:{namespace}:{name}"));
        // What is no name in Kubernetes is nobody's: never the daemon's.
        Self::Operator(user.unwrap_or(HeaderValue::from_static("system:anonymous")))
    }

    /// Returns the user whose rights count.
    pub fn user(&self) -> &str {
        match self {
            Self::Daemon => "the daemon's service account",
            Self::Operator(user) => user.to_str().unwrap_or_default(),
        }
    }
}

// === impl Access ===

impl Access {
    /// Returns the API server as `who` uses it.
    pub fn new(api: Arc<ApiServer>, who: Identity) -> Self {
        Self { api, who }
    }
}

impl Cluster for Access {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        self.api.carry_out(&self.who, write).boxed()
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        async move {
            let Self { api, who } = self;
            let target = Target::object(gvk.clone(), key.clone());
            fits(&target)?;
            let kind = api.resolve(gvk).await?;
            let about = About { who, verb: "get", gvk, key: Some(key) };
            let path = kind.object_path(&target);
            match api.read(&about, Method::GET, &path, None).await {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.reason == Reason::Missing => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn look<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        async move {
            let Self { api, who } = self;
            fits(&Target::object(gvk.clone(), key.clone()))?;
            let kind = api.resolve(gvk).await?;
            let about = About { who, verb: "look at", gvk, key: Some(key) };
            let selector = escape(&format!("metadata.name={}", key.name));
            let path = format!("{}?fieldSelector={selector}", kind.path(key.namespace.as_deref()));
            let bytes = api.request(&about, Method::GET, &path, None).await?;
            let list: Found<'_> = serde_json::from_slice(&bytes).map_err(|e| about.broken(&e))?;
            let object = |item: &RawValue| Object::parse(item.get(), gvk, &Managers::all());
            let found = list.items.first().map(|item| object(item)).transpose();
            let found = found.map_err(|e| about.broken(&e))?;
            Ok(found.filter(|object| object.key() == key))
        }
        .boxed()
    }

    fn scope(&self, gvk: &Gvk) -> Option<Scope> {
        self.api.kinds.read().get(gvk).map(|kind| kind.scope)
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
        if self.gvk.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.gvk.group) }
    }

    fn object_path(&self, target: &Target) -> String {
        let path = format!("{}/{}", self.path(target.key.namespace.as_deref()), target.key.name);
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
    let prefix = if gvk.group.is_empty() { "/api" } else { "/apis" };
    format!("{prefix}/{}", gvk.api_version())
}

/// Escapes a value for a query.
pub(crate) fn escape(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn deletion_body(deletion: &Deletion) -> String {
    let Deletion { propagation, uid, version, grace_seconds } = deletion;
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
        let given = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
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
    Err(Error::new(Reason::Invalid, 0, message))
}

fn retry_after(response: &Response<Body>) -> Duration {
    let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let seconds = header.and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds).min(Duration::from_secs(10))
}

/// Why a body could not be read.
pub(crate) enum Broken {
    /// It is longer than it may be.
    Long,
    /// It broke off.
    Off(String),
}

/// Returns a body that has so many bytes at most.
pub(crate) async fn collect(body: Body, most: usize) -> Result<Bytes, Broken> {
    match Limited::new(body, most).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Broken::Long),
        Err(error) => Err(Broken::Off(chain(&*error))),
    }
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
    kept(text)
}

impl About<'_> {
    fn error(&self, reason: Reason, code: u16, text: &dyn std::fmt::Display) -> Error {
        let Self { verb, gvk, key, .. } = self;
        let message = match key {
            Some(key) => format!("{verb} {gvk} {key}: {text}"),
            None => format!("{verb} {gvk}: {text}"),
        };
        Error::new(reason, code, message)
    }

    fn unreachable(&self, text: &dyn std::fmt::Display) -> Error {
        self.error(Reason::Unreachable, 0, &format_args!("the API server can't be reached: {text}"))
    }

    fn late(&self) -> Error {
        self.unreachable(&format_args!("no answer within {} s", TIMEOUT.as_secs()))
    }

    fn invalid(&self, text: &dyn std::fmt::Display) -> Error {
        self.error(Reason::Invalid, 0, text)
    }

    fn broken(&self, text: &dyn std::fmt::Display) -> Error {
        self.error(Reason::Unusable, 0, &format_args!("the API server's answer can't be read: {text}"))
    }

    /// Turns an answer that is no success into an error.
    async fn refused(&self, response: Response<Body>) -> Error {
        let status = response.status();
        let body = match collect(response.into_body(), REFUSAL).await {
            Ok(body) => body,
            Err(Broken::Long) => format!("an explanation of more than {REFUSAL} bytes").into(),
            // Only the explanation says whether an object is missing or its kind, and whether a test failed or all is wrong.
            Err(Broken::Off(error)) => {
                let code = status.as_u16();
                return self.unreachable(&format_args!("its answer (HTTP {code}) broke off: {error}"));
            }
        };
        let answer: Status = serde_json::from_slice(&body).unwrap_or_default();
        let text = answer.message.unwrap_or_else(|| String::from_utf8_lossy(&body).trim().to_owned());
        let causes = answer.details.and_then(|details| details.causes);
        let fields = causes.into_iter().flatten().filter_map(|cause| cause.field);
        let fields = fields.collect::<Vec<_>>().join(", ");
        let absent = text.contains("could not find the requested resource") || text == "404 page not found";
        let reason = match status.as_u16() {
            404 if absent => Reason::UnknownKind,
            404 if answer.reason.as_deref() == Some("NotFound") => Reason::Missing,
            // Whoever says so does not know the object.
            404 => Reason::Unreachable,
            409 => Reason::Conflict,
            401 | 403 => Reason::Forbidden,
            429 => Reason::Busy,
            400..=499 => Reason::Rejected,
            _ => Reason::Unreachable,
        };
        let cure = match (status.as_u16(), self.who) {
            (403, Identity::Operator(_)) if text.contains("cannot impersonate") => {
                format!("; the daemon's own service account lacks the right to impersonate {}", self.who.user())
            }
            (403, Identity::Operator(_)) => {
                format!("; the operator acts as {}, which lacks that right", self.who.user())
            }
            _ => String::new(),
        };
        let mut refusal = self.error(
            reason,
            status.as_u16(),
            // What was asked, the status and the cure have room beside it.
            &format_args!("{} (HTTP {}){cure}", said_within(&text, LONGEST / 2), status.as_u16()),
        );
        refusal.fields = said_within(&fields, LONGEST / 4).into_owned();
        refusal
    }
}

#[derive(Default, Deserialize)]
struct Status {
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    causes: Option<Vec<Cause>>,
}

#[derive(Deserialize)]
struct Cause {
    field: Option<String>,
}

#[derive(Deserialize)]
struct Found<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
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

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::io;

    use capstan_core::budget::Budget;
    use capstan_core::patch::Patch;
    use futures::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// What an API server answers: with this status, or not at all; and its body.
    pub(crate) struct Answer(pub(crate) Option<u16>, pub(crate) Vec<Step>);

    /// A step of a body.
    #[derive(Clone)]
    pub(crate) enum Step {
        /// So much comes.
        Comes(String),
        /// Nothing comes for so long.
        Rests(Duration),
        /// Nothing comes any more.
        Silent,
        /// The connection breaks.
        Cut,
    }

    impl Step {
        async fn frame(self) -> Option<io::Result<Frame<Bytes>>> {
            match self {
                Self::Comes(text) => Some(Ok(Frame::data(text.into()))),
                Self::Rests(time) => {
                    sleep(time).await;
                    None
                }
                Self::Silent => pending().await,
                Self::Cut => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    /// Returns a client of an API server that answers as `answer` says, and the paths that it was asked for. It has no sockets,
    /// so its clock may be stopped.
    pub(crate) fn scripted(
        mut answer: impl FnMut(&str) -> Answer + Send + 'static,
    ) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().to_string();
            let Answer(status, steps) = answer(&path);
            noted.lock().push(path);
            async move {
                let Some(status) = status else {
                    return pending().await;
                };
                let frames = stream::iter(steps).then(Step::frame).filter_map(ready);
                let response = Response::builder().status(status);
                Ok::<_, Infallible>(response.body(StreamBody::new(frames)).unwrap())
            }
        });
        (kube::Client::new(service, "default"), asked)
    }

    /// Returns an API server that answers every request with this head and so many bytes.
    pub(crate) async fn answering(head: &'static str, body: usize) -> ApiServer {
        ApiServer::new(client(head, vec![b'x'; body]).await, Managers::default())
    }

    /// Returns a client of an API server that answers every request with this head and body.
    pub(crate) async fn client(head: &'static str, body: Vec<u8>) -> kube::Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let length = body.len();
        let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n");
        let whole: Arc<[u8]> = [head.into_bytes(), body].concat().into();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let whole = Arc::clone(&whole);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                        // Whoever has read enough hangs up.
                        drop(stream.write_all(&whole).await);
                    }
                });
            }
        });
        let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
        // As the daemon has it.
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    pub(crate) fn config_maps() -> Kind {
        Kind { gvk: Gvk::parse("v1", "ConfigMap").unwrap(), plural: "configmaps".into(), scope: Scope::Namespaced }
    }

    /// Returns how a read of an object fails.
    async fn failure(api: &Arc<ApiServer>) -> Error {
        let kind = config_maps();
        api.kinds.write().insert(kind.gvk.clone(), kind.clone());
        let key = ObjectRef::namespaced("n", "a");
        let api = Access::new(Arc::clone(api), Identity::Daemon);
        api.get(&kind.gvk, &key).await.unwrap_err()
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_refused_with_what_it_is_and_how_long_it_may_be() {
        let api = Arc::new(answering("200 OK", ANSWER + 1).await);
        let error = failure(&api).await;
        assert_eq!(error.reason, Reason::Unusable);
        let text = "get v1 ConfigMap n/a: the API server's answer can't be read: it is longer than 16777216 bytes";
        assert_eq!(error.message, text);
    }

    #[tokio::test]
    async fn an_explanation_of_a_refusal_is_one_line_of_bounded_length_whatever_is_sent() {
        for (body, ends) in [
            (LONGEST * 10, "bytes left out) (HTTP 500)"),
            (REFUSAL + 1, "an explanation of more than 65536 bytes (HTTP 500)"),
        ] {
            let api = Arc::new(answering("500 Internal Server Error", body).await);
            let error = failure(&api).await;
            assert_eq!((error.reason, error.code), (Reason::Unreachable, 500));
            assert!(error.message.ends_with(ends), "{}", error.message);
            assert!(error.message.len() <= LONGEST, "{}", error.message.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_whole_answer_of_an_api_server_says_that_an_object_is_missing() {
        let missing =
            r#"{"kind":"Status","reason":"NotFound","message":"configmaps \"a\" not found","details":{"name":"a"}}"#;
        let half = missing.split_at(60).0;
        for (body, expected) in [
            (vec![Step::Comes(missing.to_owned())], Reason::Missing),
            (vec![Step::Comes("404 page not found\n".to_owned())], Reason::UnknownKind),
            (vec![Step::Comes(half.to_owned()), Step::Cut], Reason::Unreachable),
            (vec![Step::Cut], Reason::Unreachable),
            (vec![], Reason::Unreachable),
            (vec![Step::Comes("<html>no backend</html>".to_owned())], Reason::Unreachable),
        ] {
            let (client, _) = scripted(move |_| Answer(Some(404), body.clone()));
            let (api, kind) = (ApiServer::new(client, Managers::default()), config_maps());
            api.kinds.write().insert(kind.gvk.clone(), kind.clone());
            let api = Access::new(Arc::new(api), Identity::Daemon);
            let found = api.get(&kind.gvk, &ObjectRef::namespaced("n", "a")).await;
            let reason = found.map_or_else(|error| error.reason, |_| Reason::Missing);
            assert_eq!(reason, expected);
        }
    }

    #[tokio::test]
    async fn an_api_server_that_has_too_much_to_do_is_asked_again_and_then_called_busy() {
        let api = Arc::new(answering("429 Too Many Requests\r\nretry-after: 0", 0).await);
        let error = failure(&api).await;
        assert_eq!((error.reason, error.code), (Reason::Busy, 429));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_the_api_server_has_no_time_for_do_not_come_back_in_step() {
        let mut waited = BTreeSet::new();
        for _ in 0..20 {
            let (client, asked) = scripted(|_| Answer(Some(429), Vec::new()));
            let began = Instant::now();
            failure(&Arc::new(ApiServer::new(client, Managers::default()))).await;
            assert_eq!(asked.lock().len(), 5);
            waited.insert(began.elapsed());
        }
        let [first, last] = [waited.first().unwrap(), waited.last().unwrap()];
        assert!(*first >= Duration::from_secs(4), "sooner than it asks for");
        assert!(*last <= Duration::from_secs(6), "{last:?}");
        assert!(waited.len() > 10, "{waited:?}");
    }

    fn manager() -> Arc<str> {
        "web".into()
    }

    fn apply(body: &str) -> Verb {
        Verb::Apply { body: body.to_owned(), manager: manager(), force: false }
    }

    fn replace(body: &str) -> Verb {
        Verb::Replace { body: body.to_owned(), manager: manager() }
    }

    fn merge(body: &str) -> Verb {
        Verb::MergePatch { body: body.to_owned(), manager: manager() }
    }

    fn patch(text: &str) -> Verb {
        Verb::JsonPatch { patch: Patch::read(text, &mut Budget::of_run()).unwrap(), manager: manager() }
    }

    #[tokio::test]
    async fn only_a_json_patch_that_tests_something_conflicts_by_422() {
        let generic = r#"{"message":"the server rejected our request due to an error in our request","details":{}}"#;
        let invalid = r#"{"message":"ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"a b\"","details":{"causes":[{"field":"metadata.labels"}]}}"#;
        for (verb, answer, expected) in [
            (apply(r#"{"metadata":{"resourceVersion":"1"}}"#), invalid, Reason::Rejected),
            (replace(r#"{"metadata":{"resourceVersion":"7"}}"#), invalid, Reason::Rejected),
            (merge(r#"{"metadata":{"resourceVersion":"7"}}"#), generic, Reason::Rejected),
            (patch(r#"[{"op":"test","path":"/metadata/uid","value":"u"}]"#), generic, Reason::Conflict),
            (patch(r#"[{"op":"test","path":"/metadata/uid","value":"u"}]"#), invalid, Reason::Rejected),
            (patch(r#"[{"op":"add","path":"/spec","value":{"op":"test"}}]"#), generic, Reason::Rejected),
        ] {
            let body = answer.to_owned();
            let (client, _) = scripted(move |_| Answer(Some(422), vec![Step::Comes(body.clone())]));
            let (api, kind) = (ApiServer::new(client, Managers::default()), config_maps());
            api.kinds.write().insert(kind.gvk.clone(), kind.clone());
            let target = Target::object(kind.gvk, ObjectRef::namespaced("n", "a"));
            let about = format!("{verb:?}: {answer}");
            let write = Write { target, verb };
            let error = Access::new(Arc::new(api), Identity::Daemon).write(write).await;
            let error = error.unwrap_err();
            assert_eq!((error.reason, error.code), (expected, 422), "{about}");
        }
    }

    #[tokio::test]
    async fn an_api_server_that_fails_at_all_requests_is_told() {
        let api = Arc::new(answering("503 Service Unavailable", 0).await);
        failure(&api).await;
        assert_eq!(api.pulse.trouble(), None, "not at once");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        let trouble = api.pulse.trouble().unwrap();
        assert!(trouble.starts_with("nothing heard of it for 11 s: get v1 ConfigMap"), "{trouble}");
    }
}
