//! Decides what an author's receivers get and answer.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::imports::capstan::operator::types::{Learned, ObjectKey, SourceEvent};
use crate::bindings::inbound::exports::capstan::operator::inbound;
use crate::{Json, Result};

/// A request from outside, for a receiver. The daemon has checked its sender as the manifest says.
///
/// ```
/// # use capstan_guest::Request;
/// let request = Request::new(r#"{ "page": "hello" }"#).header("X-Event", "push").path("/main?x=1");
/// assert_eq!(request.get("x-event"), Some("push"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// What follows the source's own address, with the query.
    pub path: String,
    /// The headers, names in small letters; values of one name are joined by `, `.
    pub headers: Vec<(String, String)>,
    /// The body, as a text, or in base64 if the manifest says so.
    pub body: String,
}

impl Request {
    /// A request with a body, for tests.
    #[must_use]
    pub fn new(body: impl Into<String>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// The same with a header more; one of a name that is there already is joined to it.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        let (name, value) = (name.to_lowercase(), value.into());
        match self.headers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => *values = format!("{values}, {value}"),
            None => self.headers.push((name, value)),
        }
        self
    }

    /// The same with this path.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Returns the value of a header; names are the same in small and in capital letters.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the body, read as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        Json::unchecked(self.body.as_str()).parse()
    }
}

/// What a request says, and what it is answered with: with status 202 and no text, if nothing else is said. It is answered once the primaries
/// that it concerns are in the queue.
///
/// ```
/// # use capstan_guest::Received;
/// # use serde_json::json;
/// Received::new().wake("default", "hello");
/// Received::new().present("default", "hello", json!({ "id": 7 })).gone("default", "hello", "8").text("thanks");
/// Received::new().status(400).text("no page is named");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "it is returned from a receiver"]
pub struct Received {
    status: u16,
    text: String,
    events: Result<Vec<SourceEvent>>,
}

impl Received {
    /// Nothing is learned.
    pub fn new() -> Self {
        Self { status: 202, text: String::new(), events: Ok(Vec::new()) }
    }

    /// This primary should run; or, where the manifest says `fetch`, its things are read, and it runs if they have changed.
    pub fn wake<'a>(self, namespace: impl Into<Option<&'a str>>, name: &str) -> Self {
        self.learn(namespace.into(), name, Ok(Learned::Wake))
    }

    /// This primary has a thing, which is new or has changed; it has an id where the manifest says.
    pub fn present<'a, T: Serialize>(self, namespace: impl Into<Option<&'a str>>, name: &str, thing: T) -> Self {
        let thing = Json::of(&thing).map(|thing| Learned::Present(thing.into_string()));
        self.learn(namespace.into(), name, thing)
    }

    /// The thing of this primary with this id is gone.
    pub fn gone<'a>(self, namespace: impl Into<Option<&'a str>>, name: &str, id: impl Into<String>) -> Self {
        self.learn(namespace.into(), name, Ok(Learned::Gone(id.into())))
    }

    /// Answers with this HTTP status, from 200 to 599.
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Answers with this text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    fn learn(mut self, namespace: Option<&str>, name: &str, learned: Result<Learned>) -> Self {
        let primary = ObjectKey::of(namespace, name);
        self.events = self.events.and_then(|mut events| {
            events.push(SourceEvent { primary, learned: learned? });
            Ok(events)
        });
        self
    }

    pub(crate) fn into_answer(self) -> Result<inbound::InboundAnswer> {
        if !(200..600).contains(&self.status) {
            return Err(format!("the status {} is not from 200 to 599", self.status).into());
        }
        Ok(inbound::InboundAnswer { status: self.status, body: self.text, events: self.events? })
    }
}

impl Default for Received {
    fn default() -> Self {
        Self::new()
    }
}

impl From<inbound::InboundRequest> for Request {
    fn from(request: inbound::InboundRequest) -> Self {
        let inbound::InboundRequest { path, headers, body } = request;
        headers.into_iter().fold(Self::new(body).path(path), |request, pair| request.header(&pair.name, pair.value))
    }
}
