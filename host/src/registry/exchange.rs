//! Sends one request to a registry and waits for its answer: follows redirects, shows who asks once it is asked for, and reads no more than fits.

use bytes::Bytes;
use capstan_core::registry::answer::Part;
use capstan_core::registry::challenge::{self, Challenge};
use capstan_core::registry::{Credentials, Failure, Kind, Url};
use capstan_core::text::said;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, PROXY_AUTHORIZATION, RETRY_AFTER, USER_AGENT, WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::proxy::Proxy;
use super::{Patience, Session, away, within};
use crate::client;

/// The most redirects that are followed, one after the other.
const REDIRECTS: usize = 5;

/// The most bytes of a token's answer, and of what a registry says of a failure.
const TOKEN: usize = 64 << 10;
const REASON: usize = 4 << 10;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) part: Part,
    /// The media types that are accepted.
    pub(super) accept: Option<&'static str>,
    /// What is sent, and of which media type it is.
    pub(super) body: Option<(Bytes, &'static str)>,
}

/// An answer whose body has not been read.
pub(super) struct Answer {
    response: Response<Incoming>,
    patience: Patience,
    _driver: AbortOnDropHandle<()>,
}

// === impl Ask ===

impl Ask {
    /// Returns a question that sends nothing.
    pub(super) fn new(method: Method, url: Url, part: Part) -> Self {
        Self { method, url, part, accept: None, body: None }
    }
}

// === impl Session ===

impl Session {
    /// Asks, and returns the answer if it is a good one.
    pub(super) async fn ask(&mut self, mut ask: Ask) -> Result<Answer, Failure> {
        let (mut hops, mut asked) = (0, false);
        // Whoever is asked after another server never gets to know who asks.
        let mut is_known = true;
        loop {
            let authorization = self.authorization.clone().filter(|_| is_known);
            let answer = self.once(&ask, authorization).await?;
            let status = answer.response.status();
            if status.is_success() {
                return Ok(answer);
            }
            if status == StatusCode::UNAUTHORIZED && is_known && !asked {
                asked = true;
                if self.show(&answer).await? {
                    continue;
                }
            }
            let Some(location) = answer.redirect(&ask.method) else {
                return Err(self.failed(ask.part, answer).await);
            };
            hops += 1;
            let next = ask.url.follow(&location).map_err(|why| away(format!("its redirect is not followed: {why}")))?;
            if hops > REDIRECTS {
                return Err(away(format!(
                    "it redirects more than {REDIRECTS} times, the last time to {}",
                    next.server()
                )));
            }
            is_known &= next.same_server(&ask.url);
            ask.url = next;
        }
    }

    /// Sends one request, and waits for the head of its answer.
    async fn once(&self, ask: &Ask, authorization: Option<String>) -> Result<Answer, Failure> {
        let mut connection = self.connect(&ask.url).await?;
        let request = request(ask, authorization, connection.proxy.as_ref())?;
        let server = ask.url.server();
        let patience = self.way.patience;
        // What is sent may be long.
        let limit = if ask.body.is_some() { patience.whole } else { patience.idle };
        let sent = connection.sender.send_request(request);
        let sent = async { sent.await.map_err(|error| away(format!("{server} ends before it answers: {error}"))) };
        let response = within(limit, &format!("the answer of {server}"), sent).await?;
        Ok(Answer { response, patience, _driver: connection.driver })
    }

    /// Does what an answer asks for, so that it may be asked once more. False if that is not known here, or there is nothing to show.
    async fn show(&mut self, answer: &Answer) -> Result<bool, Failure> {
        let headers =
            answer.response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        match Challenge::of(headers) {
            Some(Challenge::Basic) => self.authorization = self.credentials.basic(),
            Some(Challenge::Bearer { realm, service }) => {
                let token = Box::pin(self.token(&realm, service.as_deref())).await?;
                self.authorization = Some(format!("Bearer {token}"));
            }
            None => return Ok(false),
        }
        Ok(self.authorization.is_some())
    }

    /// Gets a token from where the registry says.
    async fn token(&self, realm: &str, service: Option<&str>) -> Result<String, Failure> {
        let for_what = (self.reference.repository(), self.access);
        let url = challenge::realm((realm, service), for_what, self.scheme)
            .map_err(|why| away(format!("its realm: {why}")))?;
        let server = url.server();
        let ask = Ask::new(Method::GET, url, Part::Token);
        let answer = self.once(&ask, self.credentials.basic()).await?;
        if !answer.response.status().is_success() {
            let failure = self.failed(Part::Token, answer).await;
            return Err(Failure { message: format!("{server}, where it sends those who ask: {failure}"), ..failure });
        }
        let answer = answer.bytes(TOKEN, "the token").await?;
        challenge::token(&answer).map_err(|why| away(format!("{server}, where it sends those who ask: {why}")))
    }

    /// Returns what an answer means that is no good one.
    async fn failed(&self, part: Part, answer: Answer) -> Failure {
        let who = if self.authorization.is_some() || part == Part::Token {
            &self.credentials
        } else {
            &Credentials::Anonymous
        };
        let status = answer.response.status().as_u16();
        let after = answer.header(&RETRY_AFTER);
        // It says less if that takes too long, or is too much.
        let reason = answer.bytes(REASON, "").await.unwrap_or_default();
        Failure::of(status, (part, who), &reason, after.as_deref())
    }
}

// === impl Answer ===

impl Answer {
    /// Returns a header as text.
    pub(super) fn header(&self, name: &HeaderName) -> Option<String> {
        Some(self.response.headers().get(name)?.to_str().ok()?.to_owned())
    }

    /// Returns all headers of a name that are texts.
    pub(super) fn headers(&self, name: &HeaderName) -> Vec<String> {
        let all = self.response.headers().get_all(name).iter();
        all.filter_map(|value| Some(value.to_str().ok()?.to_owned())).collect()
    }

    /// Returns where it leads, if it does: what is written is not written elsewhere.
    fn redirect(&self, method: &Method) -> Option<String> {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let leads = matches!(self.response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        self.header(&LOCATION).filter(|_| is_read && leads)
    }

    /// Returns the next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let limit = self.patience.idle;
            let late = |_| away(format!("nothing more came for {} s", limit.as_secs_f64()));
            match timeout(limit, self.response.body_mut().frame()).await.map_err(late)? {
                None => return Ok(None),
                Some(Err(error)) => return Err(away(format!("its answer ends before it is whole: {error}"))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Returns the whole body.
    pub(super) async fn bytes(mut self, most: usize, what: &str) -> Result<Vec<u8>, Failure> {
        let limit = self.patience.answer;
        let read = async {
            let mut bytes = Vec::new();
            while let Some(more) = self.next().await? {
                if bytes.len() + more.len() > most {
                    return Err(Failure::new(Kind::Wrong, format!("{what} has more than {most} bytes")));
                }
                bytes.extend_from_slice(&more);
            }
            Ok(bytes)
        };
        within(limit, what, read).await
    }
}

/// Makes a request of a question.
fn request(ask: &Ask, authorization: Option<String>, proxy: Option<&Proxy>) -> Result<Request<Full<Bytes>>, Failure> {
    let unusable = |what: &str| away(format!("{} can't stand in a request", said(what)));
    let value = |text: &str| HeaderValue::try_from(text).map_err(|_| unusable(text));
    // A proxy has to be told whom to ask.
    let uri = proxy.map_or_else(|| ask.url.path.clone(), |_| format!("{}{}", ask.url.server(), ask.url.path));
    let mut request = Request::builder().method(&ask.method).uri(uri);
    if let Some(authorization) = proxy.and_then(Proxy::authorization) {
        request = request.header(PROXY_AUTHORIZATION, authorization);
    }
    request = request.header(HOST, value(&ask.url.authority())?).header(USER_AGENT, client::USER_AGENT);
    if let Some(accept) = ask.accept {
        request = request.header(ACCEPT, accept);
    }
    if let Some(authorization) = authorization {
        let mut secret = HeaderValue::try_from(authorization)
            .map_err(|_| away("the user's name or password can't stand in a request"))?;
        secret.set_sensitive(true);
        request = request.header(AUTHORIZATION, secret);
    }
    let (body, media_type) =
        ask.body.clone().map_or((Bytes::new(), None), |(body, media_type)| (body, Some(media_type)));
    if let Some(media_type) = media_type {
        request = request.header(CONTENT_TYPE, media_type);
    }
    request.body(Full::new(body)).map_err(|_| unusable(&ask.url.path))
}
