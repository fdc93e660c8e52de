//! A registry in this process, on loopback: it keeps what is pushed, and does what a test has it do wrong.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use capstan_core::registry::Digest;
use capstan_core::registry::referrers::INDEX;
use futures::stream;
use http::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What a test has it do in place of what is right: `None` leaves it to that.
pub(crate) type Fault = dyn Fn(&Asked) -> Option<Response<Body>> + Send + Sync;

/// What it was asked: the line of the request, and who has asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) who: Option<String>,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    /// `user` with the password `pass`.
    Basic,
    /// Who shows a token that `/token` gives to that user.
    Bearer,
}

pub(crate) struct Fake {
    pub(crate) address: String,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

struct Shared {
    address: String,
    door: Mutex<Door>,
    fault: Mutex<Option<Box<Fault>>>,
    /// Blobs by `repository/digest`, and manifests by `repository:tag` and `repository@digest`.
    kept: Mutex<BTreeMap<String, Bytes>>,
    asked: Mutex<Vec<Asked>>,
    /// Whether it lists what refers to a manifest.
    lists: Mutex<bool>,
}

impl Fake {
    pub(crate) async fn start(door: Door) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            address: address.clone(),
            door: Mutex::new(door),
            fault: Mutex::default(),
            kept: Mutex::default(),
            asked: Mutex::default(),
            lists: Mutex::default(),
        });
        let server = serve(listener, Arc::clone(&shared));
        Self { address, shared, _server: AbortOnDropHandle::new(tokio::spawn(server)) }
    }

    /// Has it do something wrong from now on.
    pub(crate) fn fails(&self, fault: impl Fn(&Asked) -> Option<Response<Body>> + Send + Sync + 'static) {
        *self.shared.fault.lock() = Some(Box::new(fault));
    }

    /// Has it do what is right again.
    pub(crate) fn mends(&self) {
        *self.shared.fault.lock() = None;
    }

    pub(crate) fn closes(&self, door: Door) {
        *self.shared.door.lock() = door;
    }

    /// Has it list what refers to a manifest, or know nothing of that.
    pub(crate) fn lists(&self, lists: bool) {
        *self.shared.lists.lock() = lists;
    }

    /// Returns what is there under a name.
    pub(crate) fn kept(&self, name: &str) -> Option<Bytes> {
        self.shared.kept.lock().get(name).cloned()
    }

    /// Returns the names of all that is there.
    pub(crate) fn names(&self) -> Vec<String> {
        self.shared.kept.lock().keys().cloned().collect()
    }

    /// Puts something there, and returns its digest.
    pub(crate) fn keep(&self, name: &str, bytes: impl Into<Bytes>) {
        self.shared.kept.lock().insert(name.to_owned(), bytes.into());
    }

    /// Returns what it has been asked since it was asked for this.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.asked.lock())
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(shared.answer(request).await) }
            });
            // A client that goes is no fault.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let who = head.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        let asked = Asked { line: format!("{} {}", head.method, head.uri), who: who.clone() };
        self.asked.lock().push(asked.clone());
        if let Some(wrong) = self.fault.lock().as_ref().and_then(|fault| fault(&asked)) {
            return wrong;
        }
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let user = who.as_deref() == Some("Basic dXNlcjpwYXNz");
        if path == "/token" {
            return if user { text(200, r#"{"token":"t0k3n"}"#) } else { text(401, "") };
        }
        let challenge = match *self.door.lock() {
            Door::Basic if !user => "Basic realm=\"fake\"".to_owned(),
            Door::Bearer if who.as_deref() != Some("Bearer t0k3n") => {
                format!("Bearer realm=\"http://{}/token\",service=\"fake\"", self.address)
            }
            Door::Open | Door::Basic | Door::Bearer => return self.right(&head.method, &path, &query, body),
        };
        with(text(401, ""), WWW_AUTHENTICATE.as_str(), &challenge)
    }

    fn right(&self, method: &Method, path: &str, query: &str, body: Bytes) -> Response<Body> {
        let path = path.strip_prefix("/v2/").unwrap_or(path);
        let mut kept = self.kept.lock();
        if let Some((repository, _)) = path.split_once("/blobs/uploads/") {
            return match (method, query.strip_prefix("digest=")) {
                (&Method::POST, _) => {
                    with(text(202, ""), LOCATION.as_str(), &format!("/v2/{repository}/blobs/uploads/1"))
                }
                (_, Some(name)) => {
                    assert_eq!(name, Digest::sha256(&body).to_string());
                    kept.insert(format!("{repository}/{name}"), body);
                    text(201, "")
                }
                _ => text(400, ""),
            };
        }
        if let Some((repository, name)) = path.split_once("/manifests/") {
            let by = |name: &str| format!("{repository}{}{name}", if name.contains(':') { '@' } else { ':' });
            if method == Method::PUT {
                kept.insert(by(&Digest::sha256(&body).to_string()), body.clone());
                kept.insert(by(name), body.clone());
                let refers = *self.lists.lock() && subject(&body).is_some();
                return if refers { with(text(201, ""), "oci-subject", "it is") } else { text(201, "") };
            }
            let found = kept.get(&by(name)).cloned();
            return found.map_or_else(
                || text(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
                |manifest| {
                    let digest = Digest::sha256(&manifest).to_string();
                    let body = if method == Method::HEAD { Bytes::new() } else { manifest };
                    with(bytes(200, body), "docker-content-digest", &digest)
                },
            );
        }
        if let Some((repository, digest)) = path.split_once("/referrers/") {
            let is_one = |name: &str, bytes: &Bytes| {
                name.starts_with(&format!("{repository}@")) && subject(bytes).is_some_and(|subject| subject == digest)
            };
            let all = kept.iter().filter(|(name, bytes)| is_one(name, bytes));
            let all: Vec<_> = all.map(|(name, _)| json!({ "digest": name.split_once('@').unwrap().1 })).collect();
            if *self.lists.lock() {
                return with(text(200, &json!({ "manifests": all }).to_string()), "content-type", INDEX);
            }
            return text(404, "");
        }
        let (repository, name) = path.split_once("/blobs/").unwrap();
        match kept.get(&format!("{repository}/{name}")).cloned() {
            Some(_) if method == Method::HEAD => text(200, ""),
            Some(blob) => bytes(200, blob),
            None => text(404, ""),
        }
    }
}

/// Returns the digest of what a manifest refers to.
fn subject(manifest: &[u8]) -> Option<String> {
    let manifest: Value = serde_json::from_slice(manifest).ok()?;
    Some(manifest["subject"]["digest"].as_str()?.to_owned())
}

pub(crate) fn bytes(status: u16, body: Bytes) -> Response<Body> {
    Response::builder().status(status).body(Full::new(body).boxed_unsync()).unwrap()
}

pub(crate) fn text(status: u16, body: &str) -> Response<Body> {
    bytes(status, Bytes::copy_from_slice(body.as_bytes()))
}

pub(crate) fn with(mut response: Response<Body>, header: &str, value: &str) -> Response<Body> {
    let name: http::HeaderName = header.parse().unwrap();
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

/// Returns an answer whose body comes in pieces.
pub(crate) fn pieces(pieces: impl futures::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = futures::StreamExt::map(pieces, |piece| Ok(Frame::data(piece)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// Returns an answer whose body begins, and never goes on.
pub(crate) fn hanging() -> Response<Body> {
    pieces(futures::StreamExt::chain(stream::iter([Bytes::from_static(b"{")]), stream::pending()))
}
