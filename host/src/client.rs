//! Talks to the API server: the only module that sends writes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_core::cluster::{Cluster, Error, Reason, Target, Write};
use capstan_core::health::DAEMON;
use capstan_core::kinds::Verb;
use capstan_core::manifest::ServiceAccount;
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope};
use capstan_core::room::Room;
use capstan_core::text::{kept, said};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

mod answer;
mod kinds;
mod link;
pub mod meter;
mod presence;
pub(crate) mod published;
pub mod pulse;
pub mod recorder;
pub(crate) mod request;
pub mod transit;
mod tries;
mod warned;
mod within;

use crate::backoff::Chance;
use crate::logging::runs;
use answer::About;
pub use link::Link;
use link::Way;
use presence::Presence;
use pulse::Pulse;
use request::Asked;
use transit::{Load, Transit};
use tries::{Tries, retry_after};
use warned::Warned;
pub use within::{InForce, Within, is_beyond};

/// How we name ourselves to the API server.
pub const USER_AGENT: &str = concat!("capstan/", env!("CARGO_PKG_VERSION"));

/// A request that has no answer after this time has failed. Watches are not bound by it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest answer about one object, and the longest list of kinds. An object is never longer than 3 MiB.
const ANSWER: usize = 16 << 20;

/// The longest explanation of a refusal.
const REFUSAL: usize = 64 << 10;

/// The API server of one cluster.
pub struct ApiServer {
    way: Way,
    /// Where connections are kept going: runs, which ask for requests, must not hold them up.
    runtime: Handle,
    kinds: RwLock<HashMap<Gvk, Kind>>,
    presence: Presence,
    warned: Warned,
    managers: RwLock<Managers>,
    pulse: Pulse,
    chance: Chance,
    /// The memory of answers until they are read.
    transit: Transit,
    /// Whoever has a published document.
    publishing: Arc<Mutex<()>>,
    /// Whoever asks again what a kind is called.
    renewing: Mutex<()>,
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
    /// The memory of answers until they are read.
    transit: Transit,
    /// The ceiling of whoever has one.
    within: Option<Within>,
}

/// What discovery says of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Group, version and kind.
    pub gvk: Gvk,
    /// The name in paths: `configmaps`.
    pub plural: Arc<str>,
    /// Where its objects live.
    pub scope: Scope,
}

impl ApiServer {
    /// Returns a client of this cluster that keeps the shares of `managers` when it cuts managedFields off. Its connections
    /// belong to the runtime that this is called on.
    pub fn new(client: kube::Client, managers: Managers) -> Self {
        Self::by(Way::own(client), managers)
    }

    fn by(way: Way, managers: Managers) -> Self {
        Self {
            way,
            runtime: Handle::current(),
            kinds: RwLock::default(),
            presence: Presence::default(),
            warned: Warned::default(),
            managers: RwLock::new(managers),
            pulse: Pulse::default(),
            chance: Chance::default(),
            transit: Transit::new(Room::default(), DAEMON.into()),
            publishing: Arc::default(),
            renewing: Mutex::default(),
        }
    }

    /// Lets answers take this memory until they are read.
    pub fn taking(self, transit: Transit) -> Self {
        Self { transit, ..self }
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

    /// Keeps the shares of these field managers from now on, and of no others. Returns those that are new: what is cached lacks theirs.
    pub fn keep_shares_of<'a>(&self, wanted: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut managers = self.managers.write();
        let new = wanted.iter().copied().filter(|manager| !managers.contains(manager)).collect();
        *managers = Managers::new(wanted.iter().copied());
        new
    }

    /// Returns the field managers whose shares are kept.
    pub fn managers(&self) -> Managers {
        self.managers.read().clone()
    }

    /// Returns the number of warnings that it has sent.
    pub fn warnings(&self) -> Counter {
        self.warned.count.clone()
    }

    /// Says whether somebody may list the objects of a kind, in one namespace or everywhere (none). It is asked for in the name
    /// of who it is about, so it takes no right but to act in that name.
    ///
    /// # Errors
    /// As the request failed.
    pub async fn may_list(&self, who: &Identity, kind: &Kind, namespace: Option<&str>) -> Result<bool, Error> {
        let about = About::new(who, "review the right to list", &kind.gvk, None).reading();
        // Nothing is stored for it.
        let (kind, mut load) = (request::review(who, kind, namespace), self.transit.load());
        let answer = self.request(&about, pulse::Kind::Read, kind, &mut load).await;
        about.permits(&answer?)
    }

    /// Sends a request of the daemon and returns the answer as it comes in.
    pub(crate) async fn stream(&self, kind: &Kind, verb: &str, request: Asked) -> Result<Body, Error> {
        let about = About::new(&Identity::Daemon, verb, &kind.gvk, None);
        // Whoever watches begins again where it was, and says meanwhile that it does not.
        let about = if verb == "list" { about.reading() } else { about };
        let response = self.in_time(&about, pulse::Kind::Read, self.send(&about, request)).await;
        Ok(response?.into_body())
    }

    /// Sends a request and returns the whole body of a successful answer, which is a load until it has been read.
    async fn request(
        &self,
        about: &About<'_>,
        access: pulse::Kind,
        request: Asked,
        load: &mut Load,
    ) -> Result<Bytes, Error> {
        let exchange = async {
            let answer = self.send(about, request).await?;
            load.collect(answer.into_body(), ANSWER).await.map_err(|unread| about.unread(&unread))
        };
        self.in_time(about, access, exchange).await
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
            answer.unwrap_or_else(|_| Err(about.late(TIMEOUT)))
        };
        let lost = || about.unreachable(&"it was away, and may not answer any more");
        self.pulse.follow((access, about.sender()), in_time, lost).await.map_err(|error| self.way.named(error))
    }

    /// Sends a request; again, for a while, if the API server is too busy for it, or fails at one that may be repeated.
    async fn send(&self, about: &About<'_>, request: Asked) -> Result<Response<Body>, Error> {
        let request = request.map_err(|e| about.invalid(&e))?;
        let mut tries = Tries::new(Instant::now(), TIMEOUT);
        loop {
            let (client, request) = (self.way.client(about).await?, request.clone().map(Body::from));
            // A connection lives where the request that opens it is polled.
            let exchange = self.runtime.spawn(async move { client.send(request).await });
            let response = AbortOnDropHandle::new(exchange).await;
            let response = response.map_err(|e| about.unreachable(&e))?;
            let response = response.map_err(|e| about.unreachable(&chain(&e)))?;
            self.warned.heed(about, response.headers());
            if response.status().is_success() {
                return Ok(response);
            }
            let refusal = self.refusal(about, response).await;
            let pause = tries.after(refusal, about.repeats, (Instant::now(), &self.chance))?;
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads an answer that is no success.
    async fn refusal(&self, about: &About<'_>, response: Response<Body>) -> Error {
        let (status, asked) = (response.status(), retry_after(response.headers(), Timestamp::now()));
        let refused = self.way.is_refusal(status);
        let mut error = about.refused(status, collect(response.into_body(), REFUSAL).await);
        error.retry_after = asked;
        // A document of schemas that is not there says nothing of a kind.
        if error.reason == Reason::UnknownKind && about.is_of_objects {
            self.doubt(about.gvk);
        }
        if refused {
            // Not for good: the kubeconfig is read again.
            error.reason = Reason::Unreachable;
        }
        error
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
        let transit = api.transit.clone();
        Self { api, who, transit, within: None }
    }

    /// Lets its requests count for this account: answers until they are read, as those of others find memory beside them; and what
    /// fails, or is warned of.
    #[must_use]
    pub fn counting_for(self, account: Arc<str>) -> Self {
        Self { transit: self.transit.of(account), ..self }
    }

    /// Lets it ask for nothing beyond a ceiling.
    #[must_use]
    pub fn within(self, within: Option<Within>) -> Self {
        Self { within, ..self }
    }

    /// Returns what a kind is called that may be asked for this. Refuses a target that would lead to another path than its own.
    async fn kind(&self, target: &Target, verb: Verb) -> Result<Kind, Error> {
        if let Some((what, text)) = target.misfit() {
            let message = format!("{what} {text:?} can't be part of a path at the API server");
            return Err(Error::new(Reason::Invalid, 0, message));
        }
        let kind = self.api.resolve(&target.gvk).await?;
        if let Some(within) = &self.within {
            within.permit(&kind, target.subresource.as_deref(), &[verb])?;
        }
        Ok(kind)
    }

    async fn send(&self, write: Write, manner: request::Manner) -> Result<Option<Object>, Error> {
        let Self { api, who, transit, .. } = self;
        let kind = self.kind(&write.target, within::verb(&write.verb)).await?;
        let (about, mut load) = (About::write(who, &write).of(transit.account()), transit.load());
        let asked = request::write(who, &kind, &write, manner);
        let (access, about) = match manner {
            request::Manner::CarriedOut => (pulse::Kind::Write, about),
            request::Manner::DryRun => (pulse::Kind::DryRun, about.reading()),
        };
        let answer = api.request(&about, access, asked, &mut load).await;
        let written = about.written(&write.verb, answer, &api.managers());
        if manner == request::Manner::CarriedOut {
            runs::wrote(&write.target, &write.verb, written.as_ref().map(|_| ()));
        }
        written
    }
}

impl Cluster for Access {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        self.send(write, request::Manner::CarriedOut).boxed()
    }

    fn dry_run(&self, write: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        self.send(write, request::Manner::DryRun).boxed()
    }

    fn get<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        async move {
            let Self { api, who, transit, .. } = self;
            let target = Target::object(gvk.clone(), key.clone());
            let kind = self.kind(&target, Verb::Get).await?;
            let (about, mut load) =
                (About::new(who, "get", gvk, Some(key)).reading().of(transit.account()), transit.load());
            match api.request(&about, pulse::Kind::Read, request::get(who, &kind, &target), &mut load).await {
                Ok(bytes) => about.object(&bytes, &api.managers()).map(Some),
                Err(error) if error.reason == Reason::Missing => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn look<'a>(&'a self, gvk: &'a Gvk, key: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        async move {
            let Self { api, who, transit, .. } = self;
            let target = Target::object(gvk.clone(), key.clone());
            let kind = self.kind(&target, Verb::List).await?;
            let about = About::new(who, "look at", gvk, Some(key)).reading().of(transit.account());
            let mut load = transit.load();
            let answer = api.request(&about, pulse::Kind::Read, request::look(who, &kind, key), &mut load).await;
            let found = about.first(&answer?)?;
            Ok(found.filter(|object| object.key() == key))
        }
        .boxed()
    }

    fn serves<'a>(&'a self, gvk: &'a Gvk) -> BoxFuture<'a, Result<bool, Error>> {
        self.api.serves(gvk).boxed()
    }

    fn scope(&self, gvk: &Gvk) -> Option<Scope> {
        self.api.kinds.read().get(gvk).map(|kind| kind.scope)
    }

    fn is_down(&self) -> bool {
        self.api.pulse.troubles().iter().any(|trouble| trouble.account.is_none())
    }
}

impl Kind {
    /// Returns the name as RBAC and the default finalizer have it: `webpages.sample.capstan.dev`.
    pub fn full_name(&self) -> String {
        if self.gvk.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.gvk.group) }
    }
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

/// Returns an error of a command with all its causes, as people read it: of the API server what it says, and not how kube-client writes that.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let mut texts = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            let text = if status.message.is_empty() { &status.reason } else { &status.message };
            texts.push(format!("the API server says: {} ({})", said(text), status.code));
            break;
        }
        texts.push(cause.to_string());
    }
    texts.join(": ")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::io;

    use futures::{StreamExt, stream};
    use http::Request;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn an_error_of_the_api_server_is_told_as_that_says_it() {
        let status = kube::core::Status::failure("operators \"web\" not found", "NotFound").with_code(404);
        let error = anyhow::Error::from(kube::Error::Api(status.boxed())).context("read the operator web");
        let expected = "read the operator web: the API server says: operators \"web\" not found (404)";
        assert_eq!(told(&error), expected);
        assert_eq!(told(&anyhow::anyhow!("b").context("a")), "a: b");
    }

    /// What an API server answers: with this status, or not at all; and its body.
    pub(crate) struct Answer(pub(crate) Option<u16>, pub(crate) Vec<Step>);

    /// A step of a body.
    #[derive(Clone)]
    pub(crate) enum Step {
        /// So much comes.
        Comes(String),
        /// Nothing comes for so long.
        Rests(Duration),
        /// Nothing comes until that is told.
        Awaits(Arc<Notify>),
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
                Self::Awaits(told) => {
                    told.notified().await;
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
        answer: impl FnMut(&str) -> Answer + Send + 'static,
    ) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        saying(&[], answer)
    }

    /// Returns the same, whose answers have these headers.
    fn saying(
        headers: &[(&'static str, &'static str)],
        mut answer: impl FnMut(&str) -> Answer + Send + 'static,
    ) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let headers = headers.to_vec();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().to_string();
            let Answer(status, steps) = answer(&path);
            noted.lock().push(path);
            let response =
                headers.iter().fold(Response::builder(), |response, (name, value)| response.header(*name, *value));
            async move {
                let Some(status) = status else {
                    return pending().await;
                };
                let frames = stream::iter(steps).then(Step::frame).filter_map(ready);
                let response = response.status(status);
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

    #[tokio::test(start_paused = true)]
    async fn answers_and_kinds_wait_for_memory_and_are_given_up_as_if_they_had_been_lost() {
        let large = "x".repeat(4 << 20);
        let (client, _) = scripted(move |path| {
            let body = match path {
                "/api/v1" => format!(
                    r#"{{"a":"{large}","resources":[{{"name":"configmaps","kind":"ConfigMap","namespaced":true}}]}}"#
                ),
                _ => format!(r#"{{"metadata":{{"namespace":"n","name":"a","resourceVersion":"2"}},"a":"{large}"}}"#),
            };
            Answer(Some(200), vec![Step::Comes(body)])
        });
        let room = Room::new(12 << 20);
        let transit = Transit::new(room.clone(), DAEMON.into());
        let api = Arc::new(ApiServer::new(client, Managers::default()).taking(transit));
        let kind = config_maps();
        let web = Access::new(Arc::clone(&api), Identity::Daemon).counting_for("operator web".into());
        let others = || {
            let mut others = Transit::new(room.clone(), "maps".into()).load();
            async {
                others.is(9 << 20).await.unwrap();
                others
            }
        };
        let key = ObjectRef::namespaced("n", "a");
        for known in [false, true] {
            let taken = others().await;
            let began = Instant::now();
            let error = web.get(&kind.gvk, &key).await.unwrap_err();
            assert_eq!((error.reason, began.elapsed()), (Reason::Unreachable, Duration::from_secs(10)));
            let asked = if known { "get v1 ConfigMap n/a" } else { "discover v1 ConfigMap" };
            assert!(error.message.starts_with(&format!("{asked}: there is no memory for what comes in")), "{error}");
            drop(taken);
            assert!(web.get(&kind.gvk, &key).await.unwrap().is_some());
        }
        // All of it is given back.
        let mut whole = Transit::new(room, "edge".into()).load();
        assert!(whole.is(9 << 20).await.is_ok());
    }

    #[tokio::test]
    async fn shares_are_kept_of_the_field_managers_that_are_in_use_and_of_no_others() {
        let api = answering("200 OK", 0).await;
        for (used, new) in [(vec!["a", "b"], vec!["a", "b"]), (vec!["b", "c"], vec!["c"]), (vec!["a"], vec!["a"])] {
            let used = used.into_iter().collect();
            assert_eq!(api.keep_shares_of(&used).into_iter().collect::<Vec<_>>(), new);
            let kept = ["a", "b", "c"].into_iter().filter(|manager| api.managers().contains(manager));
            assert_eq!(kept.collect::<BTreeSet<_>>(), used);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_explanation_of_a_refusal_is_read_whole_and_within_bounds() {
        let missing = r#"{"kind":"Status","reason":"NotFound","message":"configmaps \"a\" not found"}"#;
        let comes = |text: &str| Step::Comes(text.to_owned());
        for (body, expected) in [
            (vec![comes(missing)], None),
            (vec![comes(&missing[..60]), Step::Cut], Some("its answer (HTTP 404) broke off: ")),
            (vec![comes(&"x".repeat(REFUSAL + 1))], Some("v1 ConfigMap n/a: an explanation of more than 65536 bytes")),
        ] {
            let (client, _) = scripted(move |_| Answer(Some(404), body.clone()));
            let (api, kind) = (ApiServer::new(client, Managers::default()), config_maps());
            api.kinds.write().insert(kind.gvk.clone(), kind.clone());
            let api = Access::new(Arc::new(api), Identity::Daemon);
            let found = api.get(&kind.gvk, &ObjectRef::namespaced("n", "a")).await;
            match (found, expected) {
                (Ok(found), None) => assert_eq!(found, None),
                (found, expected) => {
                    let error = found.unwrap_err();
                    assert!(error.message.contains(expected.unwrap()), "{error}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_has_too_much_to_do_is_asked_again_when_it_wants_and_then_called_busy() {
        // EP-34
        for (asks, after, requests, took) in [("0", 0, 5, 2), ("7", 7, 3, 21), ("60", 60, 1, 0)] {
            let (client, asked) = saying(&[("retry-after", asks)], |_| Answer(Some(429), Vec::new()));
            let api = ApiServer::new(client, Managers::default()).pausing(Chance::new(|_| 1.0));
            let began = Instant::now();
            let error = failure(&Arc::new(api)).await;
            assert_eq!((error.reason, error.code), (Reason::Busy, 429), "{asks}");
            assert_eq!(error.retry_after, Some(Duration::from_secs(after)));
            assert_eq!((asked.lock().len(), began.elapsed().as_secs()), (requests, took), "{asks}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_fails_at_once_is_asked_for_again_unless_it_might_be_done_twice() {
        // EP-34
        let body = r#"{"metadata":{"namespace":"n","name":"a","resourceVersion":"2"}}"#.to_owned();
        let manager = || Arc::<str>::from("web");
        let create = capstan_core::cluster::Verb::Create { body: body.clone(), manager: manager() };
        let apply = capstan_core::cluster::Verb::Apply { body: body.clone(), manager: manager(), force: true };
        for (verb, dry, requests) in
            [(None, false, 2), (Some(&apply), false, 2), (Some(&create), false, 1), (Some(&create), true, 2)]
        {
            let (mut failed, body) = (false, body.clone());
            let (client, asked) = scripted(move |_| {
                if std::mem::replace(&mut failed, true) {
                    Answer(Some(200), vec![Step::Comes(body.clone())])
                } else {
                    Answer(Some(503), Vec::new())
                }
            });
            let (api, kind) = (ApiServer::new(client, Managers::default()), config_maps());
            api.kinds.write().insert(kind.gvk.clone(), kind.clone());
            let api = Access::new(Arc::new(api), Identity::Daemon);
            let key = ObjectRef::namespaced("n", "a");
            let found = match verb {
                None => api.get(&kind.gvk, &key).await,
                Some(verb) => {
                    let write = Write::own(Target::object(kind.gvk.clone(), key), verb.clone());
                    if dry { api.dry_run(write).await } else { api.write(write).await }
                }
            };
            assert_eq!((found.is_ok(), asked.lock().len()), (requests == 2, requests), "{verb:?} {dry}");
        }
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

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_fails_at_all_requests_is_told() {
        let (client, _) = scripted(|_| Answer(Some(503), Vec::new()));
        let (api, began) = (Arc::new(ApiServer::new(client, Managers::default())), Instant::now());
        failure(&api).await;
        assert_eq!(api.pulse.troubles(), [], "not at once");
        tokio::time::advance(Duration::from_secs(11).saturating_sub(began.elapsed())).await;
        let [trouble] = &api.pulse.troubles()[..] else { panic!("{:?}", api.pulse.troubles()) };
        assert!(trouble.why.starts_with("nothing heard of it for 11 s: get v1 ConfigMap"), "{trouble:?}");
        assert_eq!(trouble.account, None);
    }
}
