//! Decides what is told of the objects of one page as they come, change and go.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

/// A kind that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    WebPage,
    ConfigMap,
    Deployment,
    Service,
    Ingress,
}

/// Whether an object is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Put,
    Gone,
}

/// What a watch said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// Since the watches were started.
    pub(crate) at: Duration,
    pub(crate) kind: Kind,
    pub(crate) change: Change,
    /// As it is now, or was at last.
    pub(crate) object: Value,
}

/// A line of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) mark: Mark,
    /// Kind and name.
    pub(crate) subject: String,
    /// What is new about it.
    pub(crate) detail: String,
}

/// What has happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Came,
    Changed,
    Went,
}

/// What the daemon says of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plugin {
    pub(crate) name: String,
    /// `active` if what its file has is at work; `loading` while that is being compiled.
    pub(crate) state: String,
    /// Counts those that were put in place since the daemon started.
    pub(crate) version: u64,
    /// SHA-256 of the component at work, in hexadecimal.
    pub(crate) digest: String,
    /// Why what its file has is not at work.
    pub(crate) problem: Option<String>,
}

/// The objects of one page, and the plugin that looks after it, as last seen.
#[derive(Clone, Debug)]
pub(crate) struct World {
    page: String,
    objects: BTreeMap<(Kind, String), Value>,
    plugin: Option<Plugin>,
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::WebPage, Self::ConfigMap, Self::Deployment, Self::Service, Self::Ingress];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WebPage => "WebPage",
            Self::ConfigMap => "ConfigMap",
            Self::Deployment => "Deployment",
            Self::Service => "Service",
            Self::Ingress => "Ingress",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::WebPage => "webpages",
            Self::ConfigMap => "configmaps",
            Self::Deployment => "deployments",
            Self::Service => "services",
            Self::Ingress => "ingresses",
        }
    }

    /// Returns the root of its paths.
    pub(crate) fn root(self) -> &'static str {
        match self {
            Self::WebPage => "/apis/sample.capstan.dev/v1",
            Self::ConfigMap | Self::Service => "/api/v1",
            Self::Deployment => "/apis/apps/v1",
            Self::Ingress => "/apis/networking.k8s.io/v1",
        }
    }
}

// === impl World ===

impl World {
    pub(crate) fn new(page: &str) -> Self {
        Self { page: page.to_owned(), objects: BTreeMap::new(), plugin: None }
    }

    /// Takes in an event; returns what there is to tell of it. Objects of others are not looked at.
    pub(crate) fn apply(&mut self, event: Event) -> Option<Told> {
        let Event { kind, change, object, at: _ } = event;
        let name = text(&object, "/metadata/name")?.to_owned();
        if !self.is_ours(kind, &name, &object) {
            return None;
        }
        let subject = format!("{}/{name}", kind.name());
        let told = |mark, detail| Told { mark, subject, detail };
        let key = (kind, name);
        match change {
            Change::Gone => {
                self.objects.remove(&key)?;
                Some(told(Mark::Went, String::new()))
            }
            Change::Put => {
                let news = news(kind, self.objects.get(&key), &object).join(", ");
                let before = self.objects.insert(key, object);
                match before {
                    None => Some(told(Mark::Came, news)),
                    Some(_) if news.is_empty() => None,
                    Some(_) => Some(told(Mark::Changed, news)),
                }
            }
        }
    }

    /// Takes in what the daemon says of the plugin; returns what there is to tell of it. At first that is nothing: it has
    /// been there before.
    pub(crate) fn learn(&mut self, plugin: Plugin) -> Option<Told> {
        let before = self.plugin.replace(plugin)?;
        let now = self.plugin.as_ref().filter(|now| before != **now)?;
        Some(Told { mark: Mark::Changed, subject: format!("plugin {}", now.name), detail: now.news() })
    }

    /// Returns the plugin as the daemon told of it last.
    pub(crate) fn plugin(&self) -> Option<&Plugin> {
        self.plugin.as_ref()
    }

    /// Returns the page's object of a kind without what the cluster adds to it by and by.
    pub(crate) fn written(&self, kind: Kind) -> Option<Value> {
        let mut object = self.get(kind)?.clone();
        object.as_object_mut()?.remove("status");
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        for field in ["resourceVersion", "managedFields"] {
            metadata.remove(field);
        }
        Some(object)
    }

    /// Returns the page's object of a kind.
    pub(crate) fn get(&self, kind: Kind) -> Option<&Value> {
        let mut found = self.objects.iter().filter(|((is, _), _)| *is == kind);
        found.next().map(|(_, object)| object)
    }

    /// Returns whether the page's object of a kind is there.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.get(kind).is_some()
    }

    /// Returns what the page's object of a kind has at a pointer.
    pub(crate) fn value(&self, kind: Kind, pointer: &str) -> Option<&Value> {
        self.get(kind)?.pointer(pointer)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    fn is_ours(&self, kind: Kind, name: &str, object: &Value) -> bool {
        if kind == Kind::WebPage {
            return name == self.page;
        }
        let owners = object.pointer("/metadata/ownerReferences");
        let owners = owners.and_then(Value::as_array).into_iter().flatten();
        let is_page = |owner: &Value| {
            text(owner, "/kind") == Some(Kind::WebPage.name()) && text(owner, "/name") == Some(&self.page)
        };
        owners.into_iter().any(is_page)
    }
}

// === impl Plugin ===

impl Plugin {
    /// Returns how it is now.
    fn news(&self) -> String {
        let Self { state, version, digest, .. } = self;
        let start = digest.get(..12).unwrap_or(digest);
        match state.as_str() {
            "active" => format!("version {version}, sha256 {start}…"),
            state => format!("{state}; version {version} is at work"),
        }
    }
}

/// Returns what is new about an object.
fn news(kind: Kind, before: Option<&Value>, now: &Value) -> Vec<String> {
    let part = |object: Option<&Value>, field: &str| object.and_then(|o| o.get(field)).cloned();
    let differences = |field: &str| {
        let before = part(before, field).unwrap_or_default();
        let now = part(Some(now), field).unwrap_or_default();
        fields(before.as_object(), now.as_object())
    };
    match kind {
        Kind::WebPage => {
            let mut news = Vec::new();
            // A new page is told by its name.
            if before.is_some() {
                news = differences("spec");
            }
            let generation = |field: &String| field.starts_with("observedGeneration");
            let (other, status): (Vec<_>, Vec<_>) = differences("status").into_iter().partition(generation);
            // Beside other news it says nothing new.
            news.extend(if status.is_empty() { other } else { status });
            news
        }
        Kind::ConfigMap if before.is_some() => differences("data"),
        Kind::Deployment => {
            let ready = |object: Option<&Value>| {
                let ready = object?.pointer("/status/readyReplicas")?.as_u64()?;
                let wanted = object?.pointer("/spec/replicas")?.as_u64()?;
                Some(format!("{ready} of {wanted} ready"))
            };
            let now = ready(Some(now));
            now.filter(|now| ready(before).as_ref() != Some(now)).into_iter().collect()
        }
        Kind::ConfigMap | Kind::Service | Kind::Ingress => Vec::new(),
    }
}

/// Returns the fields that are new, other or gone.
fn fields(before: Option<&Map<String, Value>>, now: Option<&Map<String, Value>>) -> Vec<String> {
    let empty = Map::new();
    let (before, now) = (before.unwrap_or(&empty), now.unwrap_or(&empty));
    let put = now
        .iter()
        .filter(|(field, value)| before.get(*field) != Some(value))
        .map(|(field, value)| format!("{field}: {}", plain(value)));
    let gone = before.keys().filter(|field| !now.contains_key(*field)).map(|field| format!("no {field}"));
    put.chain(gone).collect()
}

/// Returns a value on one line.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(kind: Kind, object: Value) -> Event {
        Event { at: Duration::ZERO, kind, change: Change::Put, object }
    }

    fn told(mark: Mark, subject: &str, detail: &str) -> Told {
        Told { mark, subject: subject.to_owned(), detail: detail.to_owned() }
    }

    fn page(html: &str, status: &Value) -> Event {
        let object = json!({ "metadata": { "name": "hello" }, "spec": { "html": html }, "status": status });
        put(Kind::WebPage, object)
    }

    fn owned(rest: &Value) -> Value {
        let mut object = json!({ "metadata": {
            "name": "hello", "ownerReferences": [{ "kind": "WebPage", "name": "hello" }]
        } });
        for (field, value) in rest.as_object().unwrap() {
            object[field] = value.clone();
        }
        object
    }

    #[test]
    fn a_page_is_told_when_it_comes_and_then_by_what_is_new() {
        let mut world = World::new("hello");
        let bad = json!({ "areWeGood": false, "errorMessage": "no\nhtml", "observedGeneration": 2 });
        let good = json!({ "areWeGood": true, "observedGeneration": 3 });
        let seen = json!({ "areWeGood": true, "observedGeneration": 4 });
        let script = [
            (page("a", &json!(null)), Some(told(Mark::Came, "WebPage/hello", ""))),
            (page("a", &json!(null)), None),
            (page("<b>\n</b>", &json!(null)), Some(told(Mark::Changed, "WebPage/hello", "html: <b> </b>"))),
            (
                page("<b>\n</b>", &bad),
                Some(told(Mark::Changed, "WebPage/hello", "areWeGood: false, errorMessage: no html")),
            ),
            (page("<b>\n</b>", &good), Some(told(Mark::Changed, "WebPage/hello", "areWeGood: true, no errorMessage"))),
            (page("<b>\n</b>", &seen), Some(told(Mark::Changed, "WebPage/hello", "observedGeneration: 4"))),
        ];
        for (event, expected) in script {
            assert_eq!(world.apply(event), expected);
        }
    }

    #[test]
    fn a_deployment_is_told_by_its_readiness_and_a_config_map_by_its_data() {
        let mut world = World::new("hello");
        let deployment =
            |status: Value| put(Kind::Deployment, owned(&json!({ "spec": { "replicas": 1 }, "status": status })));
        let map = |text: &str| put(Kind::ConfigMap, owned(&json!({ "data": { "index.html": text } })));
        let gone = Event { change: Change::Gone, ..map("b") };
        let script = [
            (deployment(json!({})), Some(told(Mark::Came, "Deployment/hello", ""))),
            (deployment(json!({ "replicas": 1 })), None),
            (deployment(json!({ "readyReplicas": 1 })), Some(told(Mark::Changed, "Deployment/hello", "1 of 1 ready"))),
            (map("a"), Some(told(Mark::Came, "ConfigMap/hello", ""))),
            (map("b"), Some(told(Mark::Changed, "ConfigMap/hello", "index.html: b"))),
            (gone.clone(), Some(told(Mark::Went, "ConfigMap/hello", ""))),
            (gone, None),
        ];
        for (event, expected) in script {
            assert_eq!(world.apply(event), expected);
        }
        assert_eq!(world.value(Kind::Deployment, "/status/readyReplicas"), Some(&json!(1)));
        assert!(!world.has(Kind::ConfigMap) && !world.is_empty());
    }

    #[test]
    fn a_plugin_is_told_by_its_state_once_that_is_another() {
        let mut world = World::new("hello");
        let plugin = |state: &str, version, digest: &str| Plugin {
            name: "webpage".to_owned(),
            state: state.to_owned(),
            version,
            digest: digest.to_owned(),
            problem: None,
        };
        let tell = |detail| Some(told(Mark::Changed, "plugin webpage", detail));
        let script = [
            (plugin("active", 1, "aaaa"), None),
            (plugin("active", 1, "aaaa"), None),
            (plugin("loading", 1, "aaaa"), tell("loading; version 1 is at work")),
            (plugin("active", 2, "0123456789abcdef"), tell("version 2, sha256 0123456789ab…")),
        ];
        for (plugin, expected) in script {
            assert_eq!(world.learn(plugin), expected);
        }
        assert_eq!(world.plugin().map(|plugin| plugin.version), Some(2));
    }

    #[test]
    fn what_is_written_to_an_object_is_told_apart_from_what_the_cluster_adds() {
        let deployment = |image: &str, version: &str, ready: u64| {
            let mut world = World::new("hello");
            let mut object = owned(&json!({ "spec": { "image": image }, "status": { "readyReplicas": ready } }));
            object["metadata"]["resourceVersion"] = json!(version);
            object["metadata"]["managedFields"] = json!([version]);
            world.apply(put(Kind::Deployment, object));
            world.written(Kind::Deployment)
        };
        let before = deployment("nginx", "1", 0);
        assert!(before.is_some());
        assert_eq!(before, deployment("nginx", "2", 1));
        assert_ne!(before, deployment("apache", "2", 1));
    }

    #[test]
    fn what_belongs_to_nobody_or_to_another_page_is_not_told() {
        let mut world = World::new("hello");
        let other = |name: &str| json!({ "metadata": { "name": "x", "ownerReferences": [{ "kind": "WebPage", "name": name }] } });
        let events = [
            put(Kind::ConfigMap, json!({ "metadata": { "name": "kube-root-ca.crt" } })),
            put(Kind::Service, other("another")),
            put(Kind::WebPage, json!({ "metadata": { "name": "another" } })),
        ];
        assert!(events.into_iter().all(|event| world.apply(event).is_none()));
        assert!(world.is_empty());
    }
}
