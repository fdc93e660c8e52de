//! Answers requests from outside: lets them in or not, reads their bodies within bounds, and waits until the component has understood them and
//! what follows is in the queue.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use capstan_core::guest::InboundRequest;
use capstan_core::manifest::inbound::Senders;
use capstan_core::reconciler::inbound::{Problem, Received};
use capstan_core::rollout::values::Asked;
use capstan_core::room::Holding;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::runtime;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::gate::{self, Address, Gates, Refusal};
use crate::controller::Handle;
use crate::controller::inbound::Door;
use crate::http::Busy;
use crate::metrics::Metrics;
use crate::supervisor::Tokens;
use crate::supervisor::status::Status;

/// How long a body may take to come.
const BODY: Duration = Duration::from_secs(5);

/// How long an answer may take in all.
const ANSWER: Duration = Duration::from_secs(15);

/// The longest path with its query, in bytes.
const LONGEST_PATH: usize = 4 << 10;

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Desk(Arc<Inner>);

struct Inner {
    status: Arc<Status>,
    tokens: Tokens,
    metrics: Arc<Metrics>,
    /// Where components compute.
    runtime: runtime::Handle,
    gates: Gates,
}

/// A controller, and what it says of a source.
type Found = (Arc<Handle>, Door);

impl Desk {
    /// Returns a desk for the controllers that run.
    pub fn new(status: &Arc<Status>, tokens: Tokens, metrics: &Arc<Metrics>, runtime: runtime::Handle) -> Self {
        let (status, metrics) = (Arc::clone(status), Arc::clone(metrics));
        Self(Arc::new(Inner { status, tokens, metrics, runtime, gates: Gates::default() }))
    }

    /// Returns the one route there is.
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }
}

async fn answer(State(desk): State<Desk>, request: Request<Body>) -> Response {
    // It goes on if the client does not wait for it: no call is broken off, and each request is counted.
    let answered = tokio::spawn(async move { desk.0.answered(request).await }).await;
    let (status, text) = answered.unwrap_or_else(|_| panicked());
    let mut response = (status, text).into_response();
    let headers = response.headers_mut();
    // Its time is short: no request should come on a connection that is about to end.
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    let also = match status {
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
        StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "POST")),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "1")),
        _ => None,
    };
    headers.extend(also.map(|(name, value)| (name, header::HeaderValue::from_static(value))));
    response
}

impl Inner {
    /// Returns what a request is answered with, and counts it.
    async fn answered(&self, request: Request<Body>) -> (StatusCode, String) {
        let (parts, body) = request.into_parts();
        let to = gate::address(parts.uri.path()).and_then(|to| Some((self.find(&to)?, to)));
        let (counted, answered) = match &to {
            None => (None, Err(nobody())),
            Some((found, to)) => {
                let late = |_| {
                    found.0.late(to.source, ANSWER);
                    Err((StatusCode::SERVICE_UNAVAILABLE, "the request was not answered in time\n".to_owned()))
                };
                let answered = timeout(ANSWER, self.serve(found, to, &parts, body)).await;
                (Some((to.controller, to.source)), answered.unwrap_or_else(late))
            }
        };
        let (status, text) = answered.unwrap_or_else(|refusal| refusal);
        self.metrics.runs.count_request(counted, status.as_u16());
        (status, text)
    }

    /// Returns the controller that an address names, and what it says of the source.
    fn find(&self, to: &Address<'_>) -> Option<Found> {
        let handle = self.status.controller(to.controller)?;
        let door = handle.door(to.source).filter(|door| *door.operator == *to.operator)?;
        Some((handle, door))
    }

    async fn serve(
        &self,
        (_, door): &Found,
        to: &Address<'_>,
        parts: &Parts,
        body: Body,
    ) -> Result<(StatusCode, String), Refusal> {
        if parts.method != Method::POST {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "requests are sent by POST\n".to_owned()));
        }
        self.check(door, to, &parts.headers)?;
        let rest = rest(to, parts)?;
        let most = door.inbound.body_size;
        if body.size_hint().lower() > most {
            return Err(too_large(most));
        }
        let _place = self.gates.enter(to, (door.inbound.per_second, door.is_open()), Instant::now())?;
        let mut held = door.holding();
        let bytes = timeout(BODY, collect(body, most, held.as_mut()));
        let bytes = match parts.extensions.get::<Busy>() {
            Some(busy) => busy.waits(bytes).await,
            None => bytes.await,
        };
        let late = |_| (StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {} s\n", BODY.as_secs()));
        let bytes = bytes.map_err(late)??;
        let permits = self.gates.permits((&door.operator, &door.plugin), door.concurrency);
        let closed = |_| (StatusCode::SERVICE_UNAVAILABLE, "the source is being stopped\n".to_owned());
        let _permit = permits.turn(door.is_open()).await.map_err(closed)?;
        self.pass(to, (rest, &parts.headers, bytes)).await
    }

    /// Has the component understand a request, if it is let in now that its turn has come: the source may have become another one.
    async fn pass(
        &self,
        to: &Address<'_>,
        (path, given, bytes): (String, &HeaderMap, Vec<u8>),
    ) -> Result<(StatusCode, String), Refusal> {
        let (handle, door) = self.find(to).ok_or_else(nobody)?;
        self.check(&door, to, given)?;
        let no_text = || {
            let text = "the body is no text in UTF-8, as the source expects it (body: text)\n";
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, text.to_owned())
        };
        let body = door.inbound.body.write(bytes).ok_or_else(no_text)?;
        let request = InboundRequest { path, headers: headers(&door, given), body };
        let source = to.source.to_owned();
        let call = async move { handle.receive(&door, &source, request).await };
        let call = AbortOnDropHandle::new(self.runtime.spawn(call)).await;
        said(to, call.map_err(|_| panicked())?)
    }

    /// Checks that a request has the token of its source, if that has one.
    fn check(&self, door: &Door, to: &Address<'_>, headers: &HeaderMap) -> Result<(), Refusal> {
        let Senders::Token(value) = &door.inbound.senders else {
            return Ok(());
        };
        let known = (self.tokens)(&Asked { operator: Arc::clone(&door.operator), value: value.clone() });
        gate::check(headers, known.as_ref()).map_err(|(refusal, why)| {
            if let Some(why) = why.filter(|_| self.gates.is_news(to, Instant::now())) {
                let Address { operator, controller, source, .. } = to;
                tracing::warn!(operator, controller, source, token = %value, %why, "requests from outside are refused: their token is not known");
            }
            refusal
        })
    }
}

fn panicked() -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, "the daemon has failed over this request\n".to_owned())
}

fn nobody() -> Refusal {
    (StatusCode::NOT_FOUND, "there is no source at this address\n".to_owned())
}

/// Returns what an answer of the component, or a failure, is answered with.
fn said(to: &Address<'_>, answer: Result<Received, Problem>) -> Result<(StatusCode, String), Refusal> {
    match answer {
        Ok(Received { status, body, dropped }) => {
            if dropped > 0 {
                let Address { controller, source, .. } = to;
                tracing::debug!(
                    controller,
                    source,
                    dropped,
                    "a request from outside is about primaries that are not there"
                );
            }
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok((status, body))
        }
        // What the component says may be meant for whoever runs it.
        Err(Problem::Failed(_)) => Err((
            StatusCode::INTERNAL_SERVER_ERROR,
            "the request was not understood; the daemon's log says why\n".to_owned(),
        )),
        Err(Problem::Full(_)) => {
            Err((StatusCode::INSUFFICIENT_STORAGE, "there is no room for what the request says\n".to_owned()))
        }
        Err(Problem::NotNow(_)) => {
            Err((StatusCode::SERVICE_UNAVAILABLE, "the source does not take requests just now\n".to_owned()))
        }
    }
}

/// Returns what follows the address of the source, with the query.
fn rest(to: &Address<'_>, parts: &Parts) -> Result<String, Refusal> {
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let rest = format!("{}{query}", to.rest);
    if rest.len() > LONGEST_PATH {
        return Err((StatusCode::URI_TOO_LONG, format!("the path has more than {LONGEST_PATH} bytes\n")));
    }
    Ok(rest)
}

/// Returns the headers that the component is told of: not the token, nor what is no text.
fn headers(door: &Door, headers: &HeaderMap) -> Vec<(String, String)> {
    let checked = door.inbound.senders.token().is_some();
    let told = headers.iter().filter(|(name, _)| !checked || **name != header::AUTHORIZATION);
    told.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))).collect()
}

/// Reads a body of bounded length, which takes memory of the plugin.
async fn collect(mut body: Body, most: u64, mut held: Option<&mut Holding>) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| (StatusCode::BAD_REQUEST, "the body has no end\n".to_owned());
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if (bytes.len() + data.len()) as u64 > most {
            return Err(too_large(most));
        }
        // As it came, and as the component is told of it.
        let size = 3 * data.len() as u64;
        if held.as_mut().is_some_and(|held| !held.try_grow(size)) {
            let text = "there is no memory for the body just now\n".to_owned();
            return Err((StatusCode::SERVICE_UNAVAILABLE, text));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn too_large(most: u64) -> Refusal {
    (StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {most} bytes (bodySize)\n"))
}
