//! Decides the answer to each request: the API server as a value. Nothing in it waits, and nothing in it is random.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map as Json, Value, json};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::defaults;
use crate::discovery;
use crate::kinds::{self, Kind};
use crate::meta;
use crate::request::{Asked, Place};
use crate::rights::Rights;
use crate::rules::{self, Part};
use crate::service_ip;
use crate::status::Refusal;
use crate::store::{Id, Store};
use crate::watch::{Cut, Watch};

/// The time at which the model's clock begins, in seconds since 1970.
const BEGINNING: i64 = 1_767_225_600;

/// A model of the API server.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) chance: Chance,
    pub(crate) rights: Rights,
    /// The cuts of watches so far, each of one kind or of all.
    pub(crate) cuts: Vec<(Option<usize>, Cut)>,
    kinds: Vec<Served>,
    began: Instant,
    /// The last address given to a Service.
    pub(crate) address: u32,
}

/// A kind, and how it is served.
#[derive(Debug)]
struct Served {
    kind: Arc<Kind>,
    on: bool,
    /// The time from a change until watches show it.
    delay: Duration,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A document.
    Whole(Whole),
    /// The changes from now on.
    Watch(Watch),
}

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

/// A request about a kind, with what its path and the kind are.
pub(crate) struct At<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) now: Instant,
    pub(crate) number: usize,
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) part: Part,
}

impl Whole {
    /// Returns an answer of success.
    pub(crate) fn ok(body: Value) -> Self {
        Self { code: 200, body, warnings: Vec::new() }
    }
}

impl At<'_> {
    /// Returns the id of an object of this name.
    pub(crate) fn id(&self, name: &str) -> Id {
        Id::new(self.number, self.namespace, name)
    }
}

impl World {
    /// Returns an API server with the built-in kinds and the namespace `default`.
    pub(crate) fn new(seed: u64, now: Instant) -> Self {
        let mut world = Self {
            store: Store::new(),
            chance: Chance::new(seed),
            rights: Rights::default(),
            cuts: Vec::new(),
            kinds: Vec::new(),
            began: now,
            address: 0,
        };
        for kind in kinds::built_in() {
            world.add(kind);
        }
        world.put(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default" } }), now);
        world
    }

    /// Serves one more kind, which replaces another of the same name.
    pub(crate) fn add(&mut self, kind: Kind) {
        let same = |served: &&mut Served| served.kind.is(&kind.api_version(), &kind.name);
        match self.kinds.iter_mut().find(same) {
            Some(served) => served.kind = Arc::new(kind),
            None => self.kinds.push(Served { kind: Arc::new(kind), on: true, delay: Duration::ZERO }),
        }
    }

    /// Returns the number of a kind.
    pub(crate) fn number(&self, api_version: &str, kind: &str) -> Option<usize> {
        self.kinds.iter().position(|served| served.kind.is(api_version, kind))
    }

    /// Returns a kind by its number.
    pub(crate) fn kind(&self, number: usize) -> Option<&Arc<Kind>> {
        Some(&self.kinds.get(number)?.kind)
    }

    /// Returns true if a kind is served.
    pub(crate) fn is_served(&self, number: usize) -> bool {
        self.kinds.get(number).is_some_and(|served| served.on)
    }

    /// Returns the kinds that are served.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|served| served.on).map(|served| &*served.kind)
    }

    /// Sets whether a kind is served from now on.
    pub(crate) fn serve(&mut self, number: usize, serves: bool) {
        if let Some(served) = self.kinds.get_mut(number) {
            served.on = serves;
        }
    }

    /// Sets the time from a change of a kind until watches show it.
    pub(crate) fn set_delay(&mut self, number: usize, delay: Duration) {
        if let Some(served) = self.kinds.get_mut(number) {
            served.delay = delay;
        }
    }

    /// Returns a time as the API server writes it.
    pub(crate) fn written(&self, now: Instant) -> String {
        let passed = now.saturating_duration_since(self.began).as_secs();
        let seconds = BEGINNING.saturating_add(i64::try_from(passed).unwrap_or_default());
        Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
    }

    /// Returns the answer to a request.
    ///
    /// # Errors
    /// If it is refused.
    pub(crate) fn answer(&mut self, asked: &Asked, now: Instant) -> Result<Answer, Refusal> {
        if let Some(answer) = discovery::answer(self, &asked.path) {
            return answer.map(|body| Answer::Whole(Whole::ok(body)));
        }
        let place = asked.place().ok_or_else(Refusal::no_page)?;
        if let Some(answer) = self.rights.review(asked, &place) {
            return answer.map(|body| Answer::Whole(Whole { code: 201, ..Whole::ok(body) }));
        }
        self.rights.check(asked, &place)?;
        let served = |(_, served): &(usize, &Served)| {
            served.on && served.kind.plural == place.plural && served.kind.api_version() == place.api_version
        };
        let found = self.kinds.iter().enumerate().find(served);
        let (number, kind) = found
            .map(|(number, served)| (number, Arc::clone(&served.kind)))
            .ok_or_else(|| self.nothing_at(&place.api_version))?;
        let part = match place.subresource.as_deref() {
            None => Part::Main,
            Some("status") if kind.status => Part::Status,
            Some(_) => return Err(self.nothing_at(&place.api_version)),
        };
        if kind.namespaced && place.name.is_some() && place.namespace.is_none()
            || !kind.namespaced && place.namespace.is_some()
        {
            return Err(Refusal::no_page());
        }
        let at = At { asked, now, number, kind, namespace: place.namespace.as_deref(), part };
        self.dispatch(&at, &place)
    }

    /// Returns the refusal that nothing is served at a path in this group and version.
    fn nothing_at(&self, api_version: &str) -> Refusal {
        let own = |served: &Served| !served.kind.custom && served.kind.api_version() == api_version;
        if self.kinds.iter().any(own) { Refusal::no_resource() } else { Refusal::no_page() }
    }

    fn dispatch(&mut self, at: &At<'_>, place: &Place) -> Result<Answer, Refusal> {
        let whole = |answer: Result<Whole, Refusal>| answer.map(Answer::Whole);
        let name = place.name.as_deref();
        match (at.asked.verb(place), name) {
            ("watch", name) => self.open(at, name).map(Answer::Watch),
            ("list", _) => whole(self.list(at)),
            ("get", Some(name)) => whole(self.read(at, name)),
            ("create", None) if at.kind.namespaced && at.namespace.is_none() => {
                Err(Refusal::method(&at.kind, "create"))
            }
            ("create", None) => whole(self.create(at)),
            ("update", Some(name)) => whole(self.replace(at, name)),
            ("patch", Some(name)) => whole(self.patch(at, name)),
            ("delete", Some(name)) if at.part == Part::Main => whole(self.delete(at, name)),
            (verb, _) => Err(Refusal::method(&at.kind, verb)),
        }
    }

    /// Stores a change, which watches show when their kind's delay is over.
    pub(crate) fn commit(&mut self, id: &Id, new: Option<Value>, last: &Value, now: Instant) -> Arc<Value> {
        let delay = self.kinds.get(id.kind).map_or(Duration::ZERO, |served| served.delay);
        self.store.commit(id, new, last, now + delay)
    }

    /// Stores an object as it is, new or in the place of another, without checking any rule; it gets what the API
    /// server gives to objects. Returns `None` if its kind is not known.
    pub(crate) fn put(&mut self, object: &Value, now: Instant) -> Option<Value> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let number = self.number(text("apiVersion"), text("kind"))?;
        let kind = Arc::clone(self.kind(number)?);
        let namespace = kind.namespaced.then(|| meta::text(object, "namespace"));
        let id = Id::new(number, namespace, meta::text(object, "name"));
        let mut object = object.clone();
        let old = self.store.get(&id).cloned();
        let status = object.get("status").cloned();
        if old.is_none() {
            defaults::fill(&kind, &mut object);
            self.found(&mut object, now);
            rules::prepare_new(&kind, &mut object);
            if kind.name == "Service" {
                self.address += 1;
                service_ip::allocate(&mut object, self.address);
            }
            if status.is_some() {
                meta::set_part(&mut object, "status", status);
            }
        }
        Some(self.commit(&id, Some(object), &Value::Object(Json::new()), now).as_ref().clone())
    }

    /// Gives a new object what the API server gives: uid, time and, if it is to be generated, its name.
    pub(crate) fn found(&mut self, object: &mut Value, now: Instant) {
        meta::set(object, "uid", Some(self.chance.uid().into()));
        meta::set(object, "creationTimestamp", Some(self.written(now).into()));
        let begins = meta::text(object, "generateName").to_owned();
        if meta::text(object, "name").is_empty() && !begins.is_empty() {
            let begins: String = begins.chars().take(58).collect();
            meta::set(object, "name", Some(format!("{begins}{}", self.chance.suffix()).into()));
        }
    }
}
