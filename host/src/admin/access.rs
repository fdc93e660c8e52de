//! Decides who may read a page from another host: the API server says whose a token is, and what that user may do.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capstan_core::bucket::{Bucket, Rate};
use capstan_core::lately::Lately;
use capstan_core::text::said;
use futures::future::BoxFuture;
use k8s_openapi::Resource;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::client::Body;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::client::{Broken, USER_AGENT, chain, collect};
use crate::http::{Peer, bearer};

/// How long a verdict is cached.
const FRESH: Duration = Duration::from_secs(10);

/// How long a token counts as known after the API server has permitted it.
const KNOWN: Duration = Duration::from_hours(1);

/// At most this many entries are kept of each sort: permitted, refused and known.
const KEPT: usize = 256;

/// Requests under way at the same time, for known tokens and for others each.
const AT_ONCE: usize = 4;

/// The rate of requests for tokens that are not known and come from the same address: 5 at once, then one a second, and one under way. So one
/// neighbour that tries tokens leaves most of what there is for all addresses to the others.
const SHARE: Rate = Rate { interval: Duration::from_secs(1), burst: 5 };

/// At most so many addresses have a share of their own; those that come beyond have one together.
const ADDRESSES: usize = 256;

/// Stands for these.
const TOGETHER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The rate of requests for known tokens and for others each: 40 at once, then 10 a second. A client that tries
/// tokens must not use up the requests that the API server accepts from the daemon.
const QUESTIONS: Rate = Rate { interval: Duration::from_millis(100), burst: 40 };

/// The longest answer to such a request, in bytes.
const ANSWER: usize = 256 << 10;

/// How long the API server may take to answer, waiting for a place included.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the API server about tokens, and caches its verdicts for a while.
pub struct Gate {
    ask: Ask,
    verdicts: Mutex<Verdicts>,
    /// For tokens that were permitted lately: a client that tries other tokens can't use up their requests.
    known: Lane,
    others: Lane,
    shares: Mutex<HashMap<IpAddr, Arc<Share>>>,
}

/// What an address has of the requests for tokens that are not known.
struct Share {
    rate: Mutex<Bucket>,
    place: Semaphore,
}

/// Limits how often the API server is asked.
struct Lane {
    rate: Mutex<Bucket>,
    places: Semaphore,
}

/// Given a token and a path, asks whether the token's owner may get the path.
type Ask = Box<dyn Fn(String, String) -> BoxFuture<'static, Result<Verdict, String>> + Send + Sync>;

/// The API server's verdict on a token and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The token's owner may get the path.
    Permitted,
    /// The token's owner, the user of this name, may not.
    Forbidden(String),
    /// The API server does not know the token.
    Unknown,
}

/// The hash of a token and a path.
type Key = [u8; 32];

/// The cached verdicts. Those that permit are kept apart, so that a client that tries tokens can't evict them.
#[derive(Debug)]
struct Verdicts {
    permitted: Lately<Key, Verdict>,
    refused: Lately<Key, Verdict>,
    /// The tokens that count as known.
    known: Lately<Key, ()>,
}

// === impl Gate ===

impl Gate {
    /// Returns a gate that asks this cluster.
    pub fn new(client: kube::Client) -> Self {
        Self::asking(Box::new(move |token, path| Box::pin(ask(client.clone(), token, path))))
    }

    fn asking(ask: Ask) -> Self {
        Self {
            ask,
            verdicts: Mutex::default(),
            known: Lane::default(),
            others: Lane::default(),
            shares: Mutex::default(),
        }
    }

    /// Returns the status and text to answer a request from an address with, as an error, if it may not pass.
    async fn check(&self, peer: IpAddr, headers: &HeaderMap, path: &str) -> Result<(), (StatusCode, String)> {
        let Some(token) = bearer(headers) else {
            let text = "a token is needed: Authorization: Bearer TOKEN\n";
            return Err((StatusCode::UNAUTHORIZED, text.to_owned()));
        };
        let key = key(token, path);
        let known = self.verdicts.lock().get(&key, Instant::now());
        let verdict = match known {
            Some(verdict) => verdict,
            None => self.asked(peer, key, (token, path)).await?,
        };
        match verdict {
            Verdict::Permitted => Ok(()),
            Verdict::Unknown => {
                let text = "the API server does not know this token\n";
                Err((StatusCode::UNAUTHORIZED, text.to_owned()))
            }
            Verdict::Forbidden(name) => {
                let text = format!("{name} may not get {path}: no role permits that nonResourceURL\n");
                Err((StatusCode::FORBIDDEN, text))
            }
        }
    }

    async fn asked(
        &self,
        peer: IpAddr,
        key: Key,
        (token, path): (&str, &str),
    ) -> Result<Verdict, (StatusCode, String)> {
        let now = Instant::now();
        let known = self.verdicts.lock().knows(&key, now);
        let (lane, share) = if known { (&self.known, None) } else { (&self.others, Some(self.share(peer, now))) };
        let fits = share.as_ref().is_none_or(|share| share.rate.lock().take_now(1, SHARE, now));
        if !fits || !lane.rate.lock().take_now(1, QUESTIONS, now) {
            let text = "too many tokens are being tried\n".to_owned();
            return Err((StatusCode::TOO_MANY_REQUESTS, text));
        }
        let question = async {
            let _own = match &share {
                Some(share) => Some(share.place.acquire().await),
                None => None,
            };
            let _place = lane.places.acquire().await;
            (self.ask)(token.to_owned(), path.to_owned()).await
        };
        match timeout(PATIENCE, question).await {
            Ok(Ok(verdict)) => {
                self.verdicts.lock().put(key, verdict.clone(), Instant::now());
                Ok(verdict)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the API server can't be asked about a token");
                let text = "the API server can't be asked about the token\n".to_owned();
                Err((StatusCode::SERVICE_UNAVAILABLE, text))
            }
            Err(_) => {
                let text = "the API server takes too long to say something about the token\n";
                Err((StatusCode::SERVICE_UNAVAILABLE, text.to_owned()))
            }
        }
    }

    /// Returns the share of an address.
    fn share(&self, peer: IpAddr, now: Instant) -> Arc<Share> {
        let mut shares = self.shares.lock();
        if shares.len() >= ADDRESSES && !shares.contains_key(&peer) {
            shares.retain(|_, share| Arc::strong_count(share) > 1 || !share.rate.lock().is_full(now));
        }
        let own = shares.len() < ADDRESSES || shares.contains_key(&peer);
        Arc::clone(shares.entry(if own { peer } else { TOGETHER }).or_default())
    }
}

/// Lets a request pass if the gate permits it, else answers it.
pub async fn guard(
    State(gate): State<Arc<Gate>>,
    Extension(Peer(peer)): Extension<Peer>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    match gate.check(peer.to_canonical(), request.headers(), &path).await {
        Ok(()) => next.run(request).await,
        Err((StatusCode::UNAUTHORIZED, text)) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, text).into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

fn key(token: &str, path: &str) -> Key {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{path}\0{token}").as_bytes());
    let mut key = Key::default();
    key.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    key
}

// === impl Share ===

impl Default for Share {
    fn default() -> Self {
        Self { rate: Mutex::default(), place: Semaphore::new(1) }
    }
}

// === impl Lane ===

impl Default for Lane {
    fn default() -> Self {
        Self { rate: Mutex::default(), places: Semaphore::new(AT_ONCE) }
    }
}

// === impl Verdicts ===

impl Default for Verdicts {
    fn default() -> Self {
        let [permitted, refused] = [FRESH; 2].map(|time| Lately::new(KEPT, time));
        Self { permitted, refused, known: Lately::new(KEPT, KNOWN) }
    }
}

impl Verdicts {
    /// True if this token was permitted this path lately.
    fn knows(&self, key: &Key, now: Instant) -> bool {
        self.known.get(key, now).is_some()
    }

    fn get(&self, key: &Key, now: Instant) -> Option<Verdict> {
        self.permitted.get(key, now).or_else(|| self.refused.get(key, now)).cloned()
    }

    fn put(&mut self, key: Key, verdict: Verdict, now: Instant) {
        // What finds no room is asked about again.
        if verdict == Verdict::Permitted {
            self.known.put(key, (), now);
            self.permitted.put(key, verdict, now);
        } else {
            self.known.forget(&key);
            self.refused.put(key, verdict, now);
        }
    }
}

// === the API server ===

async fn ask(client: kube::Client, token: String, path: String) -> Result<Verdict, String> {
    let question = TokenReview { spec: TokenReviewSpec { token, audiences: None }, ..TokenReview::default() };
    let status = review(&client, &question).await?.status;
    let owner = status.filter(|status| status.authenticated == Some(true));
    let Some(UserInfo { username, groups, uid, extra }) = owner.and_then(|status| status.user) else {
        return Ok(Verdict::Unknown);
    };
    let question = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: username.clone(),
            groups,
            uid,
            extra,
            non_resource_attributes: Some(NonResourceAttributes { path: Some(path), verb: Some("get".to_owned()) }),
            resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    };
    Ok(match review(&client, &question).await?.status {
        Some(status) if status.allowed => Verdict::Permitted,
        Some(_) | None => Verdict::Forbidden(username.unwrap_or_default()),
    })
}

/// Posts a review to the API server, and returns the same object with its status.
async fn review<Q>(client: &kube::Client, question: &Q) -> Result<Q, String>
where
    Q: Resource + Serialize + DeserializeOwned,
{
    let path = format!("/apis/{}/{}", Q::API_VERSION, Q::URL_PATH_SEGMENT);
    let failed = |why: &dyn Display| format!("POST {path}: {why}");
    let body = serde_json::to_vec(question).map_err(|error| failed(&error))?;
    let request = Request::post(&path)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .map_err(|error| failed(&error))?;
    let response = client.send(request).await;
    let response = response.map_err(|error| failed(&chain(&error)))?;
    let status = response.status();
    let answer = collect(response.into_body(), ANSWER).await;
    let answer = answer.map_err(|broken| match broken {
        Broken::Long => failed(&format_args!("the answer is longer than {ANSWER} bytes")),
        Broken::Off(why) => failed(&why),
    })?;
    if status.is_success() {
        return serde_json::from_slice(&answer).map_err(|error| failed(&error));
    }
    let refusal: Refusal = serde_json::from_slice(&answer).unwrap_or_default();
    let Refusal { message } = refusal;
    let why = format!("HTTP {}: {}", status.as_u16(), said(&message));
    Err(failed(&why))
}

/// The part of the API server's refusal that says why.
#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns a gate to a cluster in which `reader` may read metrics and `other` exists, and how often that was
    /// asked.
    fn gate() -> (Gate, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        let gate = Gate::asking(Box::new(move |token, path| {
            count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                Ok(match (&*token, &*path) {
                    ("reader", "/metrics") => Verdict::Permitted,
                    ("reader" | "other", _) => Verdict::Forbidden(token),
                    _ => Verdict::Unknown,
                })
            })
        }));
        (gate, asked)
    }

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    async fn code(gate: &Gate, value: &str, path: &str) -> u16 {
        code_for(gate, PEER, value, path).await
    }

    async fn code_for(gate: &Gate, peer: IpAddr, value: &str, path: &str) -> u16 {
        let mut headers = HeaderMap::new();
        if !value.is_empty() {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        gate.check(peer, &headers, path).await.map_or_else(|(code, _)| code.as_u16(), |()| 200)
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_for_whom_the_api_server_permits_it() {
        let (gate, asked) = gate();
        let table = [
            ("", "/metrics", 401),
            ("Basic cmVhZGVy", "/metrics", 401),
            ("Bearer ", "/metrics", 401),
            ("Bearer nobody", "/metrics", 401),
            ("Bearer other", "/metrics", 403),
            ("Bearer reader", "/metrics", 200),
            ("bearer reader", "/metrics", 200),
            ("Bearer reader", "/debug/plugins", 403),
        ];
        for (value, path, expected) in table {
            assert_eq!(code(&gate, value, path).await, expected, "{value} {path}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 4, "each token and path once");
        tokio::time::advance(FRESH).await;
        assert_eq!(code(&gate, "Bearer reader", "/metrics").await, 200);
        assert_eq!(asked.load(Ordering::Relaxed), 5, "a verdict does not count for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_tries_tokens_neither_floods_the_api_server_nor_keeps_others_out() {
        let (gate, asked) = gate();
        assert_eq!(code(&gate, "Bearer reader", "/metrics").await, 200);
        for n in 0..10_000 {
            code(&gate, &format!("Bearer {n}"), "/metrics").await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), SHARE.burst as usize);
        assert_eq!(code(&gate, "Bearer new", "/metrics").await, 429);
        assert_eq!(code(&gate, "Bearer reader", "/metrics").await, 200);
        assert!(gate.verdicts.lock().refused.count() <= KEPT);
    }

    fn neighbour(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0A00_0000 + n).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_neighbour_that_tries_tokens_keeps_a_new_token_of_another_one_out_for_no_moment() {
        let (gate, asked) = gate();
        for second in 0..60 {
            for n in 0..1000 {
                code_for(&gate, neighbour(1), &format!("Bearer {second}-{n}"), "/metrics").await;
            }
            // As after a rotation, with what is remembered of the last one gone.
            gate.verdicts.lock().known.forget(&key("reader", "/metrics"));
            gate.verdicts.lock().permitted.forget(&key("reader", "/metrics"));
            assert_eq!(code(&gate, "Bearer reader", "/metrics").await, 200, "in second {second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // All addresses together have no more than before, however many they are.
        let before = asked.load(Ordering::Relaxed);
        for n in 0..10_000 {
            code_for(&gate, neighbour(n), &format!("Bearer {n}"), "/metrics").await;
        }
        assert!(asked.load(Ordering::Relaxed) - before <= QUESTIONS.burst as usize);
        assert!(gate.shares.lock().len() <= ADDRESSES + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_neighbour_has_one_question_under_way_while_the_api_server_is_slow() {
        let gate = Arc::new(Gate::asking(Box::new(|token, _| {
            Box::pin(async move {
                if token != "reader" {
                    std::future::pending::<()>().await;
                }
                Ok(Verdict::Permitted)
            })
        })));
        for n in 0..10 {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move { code_for(&gate, neighbour(1), &format!("Bearer {n}"), "/metrics").await });
        }
        tokio::task::yield_now().await;
        let begun = Instant::now();
        assert_eq!(code(&gate, "Bearer reader", "/metrics").await, 200);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn what_the_api_server_says_of_a_token_is_read_within_bounds() {
        let long = vec![b'x'; 1 << 20];
        let user = serde_json::json!({ "username": "u", "groups": ["g"] });
        let known = serde_json::json!({
            "spec": {}, "status": { "authenticated": true, "user": user, "allowed": true },
        });
        let unknown = serde_json::json!({ "spec": {}, "status": { "authenticated": false } });
        let refused = serde_json::json!({ "message": "no right to create tokenreviews" });
        let too_long = "POST /apis/authentication.k8s.io/v1/tokenreviews: the answer is longer than 262144 bytes";
        let no_right = "POST /apis/authentication.k8s.io/v1/tokenreviews: HTTP 403: no right to create tokenreviews";
        for (head, body, expected) in [
            ("201 Created", known.to_string().into(), Ok(Verdict::Permitted)),
            ("201 Created", unknown.to_string().into(), Ok(Verdict::Unknown)),
            ("201 Created", long.clone(), Err(too_long)),
            ("403 Forbidden", long, Err(too_long)),
            ("403 Forbidden", refused.to_string().into(), Err(no_right)),
        ] {
            let client = crate::client::tests::client(head, body).await;
            let verdict = ask(client, "token".to_owned(), "/metrics".to_owned()).await;
            assert_eq!(verdict, expected.map_err(str::to_owned), "{head}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_permitted_lately_is_asked_for_whatever_others_try() {
        let (gate, _) = gate();
        assert_eq!(code(&gate, "Bearer reader", "/metrics").await, 200);
        let mut answers = Vec::new();
        for second in 0..300 {
            for n in 0..100 {
                code(&gate, &format!("Bearer {second}-{n}"), "/metrics").await;
            }
            if second % 30 == 29 {
                answers.push(code(&gate, "Bearer reader", "/metrics").await);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(answers, [200; 10]);
    }
}
