//! Writes Kubernetes Events about primaries, best effort, without ever holding a run up (ER rules).

use std::sync::Arc;
use std::time::Duration;

use capstan_core::budget::Budget;
use capstan_core::cluster::{Cluster, Error, Target, Verb, Write};
use capstan_core::guest::Event;
use capstan_core::object::{Gvk, Object, ObjectRef};
use capstan_core::outbox::{Message, Outbox, Posted};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::jiff::{Timestamp, Unit};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::until;
use crate::client::Access;

mod bounds;

/// The longest that one event may hold up others of its plugin.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many events are written at once, each of another plugin.
const LANES: usize = 64;

/// `ER-4`: the longest name of an object.
const NAME: usize = 253;

/// What a component says about who reports, as an annotation: the report itself is the controller's.
const COMPONENT: &str = "capstan.dev/component";

/// Takes events; cheap to clone.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

/// Writes the events that recorders took.
pub struct Writer {
    instance: String,
    shared: Arc<Shared>,
}

/// Whose events a recorder is given.
pub struct Origin {
    /// Where they are written, and in whose name.
    pub api: Access,
    /// The plugin, as `operator/plugin`: each has its own share.
    pub plugin: Arc<str>,
    /// The controller.
    pub controller: Arc<str>,
    /// The kind of its primaries.
    pub gvk: Gvk,
    /// Whether a primary owns the events about it (`ER-7`).
    pub owner_reference: bool,
    /// Counts the events that are dropped.
    pub dropped: Counter,
}

#[derive(Default)]
struct Shared {
    outbox: Mutex<Outbox<(Record, Access)>>,
    posted: Notify,
}

/// An event, and what is needed of its primary.
struct Record {
    controller: Arc<str>,
    gvk: Gvk,
    about: ObjectRef,
    uid: String,
    version: String,
    /// Whether the primary owns it.
    owned: bool,
    /// What the manifest calls it.
    name: Option<String>,
    event: Event,
}

/// Returns a recorder, and the writer to run as a task. `instance` is who reports (`ER-2`): the pod or host name.
pub fn recorder(instance: String) -> (Recorder, Writer) {
    let shared = Arc::<Shared>::default();
    let writer = Writer { instance, shared: Arc::clone(&shared) };
    (Recorder(shared), writer)
}

impl Recorder {
    /// Takes an event about a primary, or drops it: if it is none, or if its plugin has too many.
    /// `name` is what the manifest calls it.
    pub fn publish(&self, origin: &Origin, about: &Object, event: Event, name: Option<String>) {
        let (Self(shared), now) = (self, Instant::now());
        let why = match bounds::bounded(event) {
            Ok(event) => {
                let record = Record {
                    controller: Arc::clone(&origin.controller),
                    gvk: origin.gvk.clone(),
                    about: about.key().clone(),
                    uid: about.header().uid.to_string(),
                    version: about.version().to_string(),
                    owned: origin.owner_reference,
                    name,
                    event,
                };
                let message = Message {
                    id: record.id(),
                    object: format!("{} {}", record.uid, record.about),
                    size: bounds::size(&record.event),
                    times: 1,
                    content: (record, origin.api.clone()),
                };
                match shared.outbox.lock().post(&origin.plugin, message, now) {
                    Posted::Waits => {
                        shared.posted.notify_one();
                        return;
                    }
                    Posted::Dropped => "there are too many".to_owned(),
                }
            }
            Err(wrong) => wrong,
        };
        shared.posted.notify_one();
        origin.dropped.inc();
        let dropped = shared.outbox.lock().dropped(&origin.plugin, now);
        if let Some(dropped) = dropped {
            let (plugin, controller) = (&origin.plugin, &origin.controller);
            tracing::warn!(%plugin, %controller, key = %about.key(), dropped, why, "kubernetes events dropped; told once a minute");
        }
    }
}

impl Record {
    /// `ER-3`: events about cluster-scoped objects go to `default`.
    fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or("default")
    }

    /// The same for events that count as one. Two of one name may be about different primaries, or different things: only one of them
    /// has that name.
    fn id(&self) -> String {
        let name = self.name.clone().unwrap_or_else(|| name(self));
        format!("{}/{name} {} {} {}", self.namespace(), self.uid, self.kind(), self.event.reason)
    }

    fn kind(&self) -> &'static str {
        if self.event.warning { "Warning" } else { "Normal" }
    }

    /// Who reports, whatever the component says: it can't pass for another.
    fn reporter(&self) -> String {
        format!("capstan/{}", self.controller)
    }

    /// Whether an event that is there is an earlier one of these.
    fn is_again(&self, old: &Value) -> bool {
        let is = |pointer, text: &str| old.pointer(pointer).and_then(Value::as_str) == Some(text);
        is("/involvedObject/uid", &self.uid)
            && is("/type", self.kind())
            && is("/reason", &self.event.reason)
            && is("/reportingComponent", &self.reporter())
    }
}

impl Writer {
    /// Writes events until `stop`, and then those that wait for nothing else. Those of one plugin are written one after the other, beside
    /// those of others.
    pub async fn run(self, stop: CancellationToken) {
        let mut lanes = FuturesUnordered::new();
        loop {
            let mut at = None;
            while lanes.len() < LANES {
                match self.shared.outbox.lock().next(Instant::now()) {
                    Ok((plugin, message)) => lanes.push(self.send(plugin, message)),
                    Err(next) => {
                        at = next;
                        break;
                    }
                }
            }
            if stop.is_cancelled() && lanes.is_empty() {
                return;
            }
            tokio::select! {
                // Whichever it is, all are looked at next.
                biased;
                Some(plugin) = lanes.next(), if !lanes.is_empty() => self.shared.outbox.lock().sent(&plugin),
                () = until(at) => {}
                () = self.shared.posted.notified() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    /// `ER-6`: a failure is logged and nothing else.
    async fn send(&self, plugin: Arc<str>, message: Message<(Record, Access)>) -> Arc<str> {
        let (record, api) = &message.content;
        let why = match timeout(PATIENCE, self.write(record, message.times, api)).await {
            Ok(Ok(())) => return plugin,
            Ok(Err(error)) => error.message,
            Err(_) => format!("it takes longer than {PATIENCE:?}"),
        };
        tracing::warn!(%plugin, controller = %record.controller, key = %record.about, error = why, "kubernetes event not written");
        plugin
    }

    async fn write(&self, record: &Record, times: u64, api: &Access) -> Result<(), Error> {
        let (called, old) = self.place(record, api).await?;
        let now = Timestamp::now().round(Unit::Second).unwrap_or_default().to_string();
        let manager: Arc<str> = "capstan".into();
        let verb = match old {
            None => Verb::Create { body: body(record, &called, times, (&now, &self.instance)).to_string(), manager },
            Some((old, tree)) => {
                // ER-5: upon the version that was read.
                let count = tree.get("count").and_then(Value::as_u64).unwrap_or(1);
                let patch = json!({
                    "metadata": { "resourceVersion": old.version().to_string() },
                    "count": count + times, "lastTimestamp": now, "message": record.event.message,
                });
                Verb::MergePatch { body: patch.to_string(), manager }
            }
        };
        let target = Target::object(event_kind(), ObjectRef::namespaced(record.namespace(), &called));
        api.write(Write::own(target, verb)).await.map(|_| ())
    }

    /// Returns what an event is called, and what has that name already.
    async fn place(&self, record: &Record, api: &Access) -> Result<(String, Option<(Object, Value)>), Error> {
        if let Some(own) = &record.name {
            let old = self.read(record, own, api).await?;
            if old.as_ref().is_none_or(|(_, tree)| record.is_again(tree)) {
                return Ok((own.clone(), old));
            }
            // ER-7: it is another's.
            tracing::debug!(name = own, key = %record.about, "another kubernetes event has this name");
        }
        let default = name(record);
        let old = self.read(record, &default, api).await?;
        Ok((default, old))
    }

    /// Returns the event of this name, if there is one.
    async fn read(&self, record: &Record, name: &str, api: &Access) -> Result<Option<(Object, Value)>, Error> {
        let key = ObjectRef::namespaced(record.namespace(), name);
        let found = api.get(&event_kind(), &key).await?;
        Ok(found.map(|old| {
            let tree = old.tree(&mut Budget::of_run()).unwrap_or_default();
            (old, tree)
        }))
    }
}

fn event_kind() -> Gvk {
    Gvk { group: "".into(), version: "v1".into(), kind: "Event".into() }
}

/// `ER-4`: the same event has the same name, across restarts and replicas.
fn name(record: &Record) -> String {
    let Record { controller, gvk, about, uid, event, .. } = record;
    let kind = record.kind();
    let component = event.component.as_deref().unwrap_or(controller);
    let told_apart = event.key.as_deref().unwrap_or(&event.message);
    let parts = [&*gvk.kind, uid, kind, &event.reason, component, told_apart].join("\0");
    let digest = ring::digest::digest(&ring::digest::SHA256, parts.as_bytes());
    // The first half of the digest, as 32 digits.
    let half = digest.as_ref().iter().take(16).fold(0_u128, |n, byte| n << 8 | u128::from(*byte));
    let hex = format!("{half:032x}");
    let object: String = about.name.chars().take(NAME - 1 - hex.len()).collect();
    format!("{object}.{hex}")
}

/// `ER-2`: the Event as it is created.
fn body(record: &Record, name: &str, times: u64, (now, instance): (&str, &str)) -> Value {
    let Record { gvk, about, uid, version, owned, event, .. } = record;
    let reporter = record.reporter();
    let mut annotations = event.annotations.clone();
    annotations.extend(event.component.clone().map(|component| (COMPONENT.to_owned(), component)));
    // It never holds the primary up.
    let owner = || json!([{ "apiVersion": gvk.api_version(), "kind": &*gvk.kind, "name": &*about.name, "uid": uid }]);
    let metadata = json!({
        "name": name, "namespace": record.namespace(), "labels": event.labels, "annotations": annotations,
        "ownerReferences": owned.then(owner),
    });
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": {
            "apiVersion": gvk.api_version(), "kind": &*gvk.kind, "name": &*about.name, "namespace": about.namespace.as_deref(),
            "uid": uid, "resourceVersion": version,
        },
        "type": record.kind(),
        "reason": event.reason,
        "message": event.message,
        "action": event.action.as_deref().unwrap_or(""),
        "count": times,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "reportingComponent": reporter,
        "reportingInstance": instance,
        "source": { "component": reporter },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use capstan_core::object::Managers;
    use tokio::time::sleep;

    use super::*;
    use crate::client::tests::{Answer, Step, scripted};
    use crate::client::{ApiServer, Identity};

    fn record(page: &str, message: &str, key: Option<&str>) -> Record {
        let event = Event {
            warning: false,
            reason: "Made".to_owned(),
            message: message.to_owned(),
            key: key.map(str::to_owned),
            action: None,
            component: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        Record {
            controller: "pages".into(),
            gvk: Gvk::parse("sample.dev/v1", "Page").unwrap(),
            about: ObjectRef::namespaced("n", page),
            uid: "u".to_owned(),
            version: "1".to_owned(),
            owned: false,
            name: None,
            event,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_can_not_be_written_holds_up_those_of_its_own_plugin_only() {
        // ER-6
        let kinds = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"events","singularName":"event","namespaced":true,"kind":"Event","verbs":["get"]}]}"#;
        let (client, asked) = scripted(move |path| match path {
            path if path.contains("/hangs/") => Answer(None, Vec::new()),
            "/api/v1" => Answer(Some(200), vec![Step::Comes(kinds.to_owned())]),
            _ => Answer(Some(403), Vec::new()),
        });
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        let gvk = Gvk { group: "".into(), version: "v1".into(), kind: "Event".into() };
        let (recorder, writer) = recorder("pod".to_owned());
        let publish = |plugin: &str, namespace: &str, message: &str| {
            let origin = Origin {
                api: Access::new(Arc::clone(&api), Identity::Daemon),
                plugin: plugin.into(),
                controller: "pages".into(),
                gvk: gvk.clone(),
                owner_reference: false,
                dropped: Counter::default(),
            };
            let about =
                format!(r#"{{"metadata":{{"namespace":"{namespace}","name":"a","uid":"u","resourceVersion":"1"}}}}"#);
            let about = Object::parse(&about, &gvk, &Managers::default()).unwrap();
            recorder.publish(&origin, &about, record("a", message, None).event, None);
        };
        for n in 0..20 {
            publish("slow", "hangs", &n.to_string());
        }
        publish("calm", "works", "x");
        let stop = CancellationToken::new();
        let writing = tokio::spawn(writer.run(stop.clone()));
        sleep(PATIENCE / 2).await;
        let about = |namespace: &str| asked.lock().iter().filter(|path| path.contains(namespace)).count();
        assert_eq!((about("/hangs/"), about("/works/")), (1, 1), "{:?}", asked.lock());
        sleep(PATIENCE).await;
        assert_eq!(about("/hangs/"), 2);
        stop.cancel();
        timeout(PATIENCE * 20, writing).await.unwrap().unwrap();
        assert_eq!(about("/hangs/"), 20, "what waits for nothing else is tried");
    }

    #[test]
    fn events_with_the_same_key_have_the_same_name() {
        // ER-4
        assert_eq!(name(&record("a", "x", Some("k"))), name(&record("a", "y", Some("k"))));
        assert_ne!(name(&record("a", "x", None)), name(&record("a", "y", None)));
    }

    #[test]
    fn a_name_is_never_too_long() {
        assert_eq!(name(&record(&"a".repeat(253), "x", None)).len(), 253);
    }

    #[test]
    fn who_reports_is_the_controller_whatever_the_component_says() {
        let mut record = record("a", "x", None);
        record.event.component = Some("kubelet".to_owned());
        let body = body(&record, &name(&record), 3, ("now", "pod"));
        assert_eq!(body["reportingComponent"], "capstan/pages");
        assert_eq!(body["source"]["component"], "capstan/pages");
        assert_eq!(body["metadata"]["annotations"], json!({ COMPONENT: "kubelet" }));
        assert_eq!(body["count"], 3);
    }

    #[test]
    fn a_primary_owns_the_events_about_it_if_the_manifest_says_so() {
        // ER-7
        let record = record("a", "x", None);
        let metadata = |record: &Record| body(record, "n", 1, ("now", "pod"))["metadata"].clone();
        assert_eq!(metadata(&record)["ownerReferences"], Value::Null);
        let owner = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": "u" });
        assert_eq!(metadata(&Record { owned: true, ..record })["ownerReferences"], json!([owner]));
    }

    #[test]
    fn only_an_event_about_the_same_of_the_same_reporter_is_counted_up() {
        // ER-7
        let record = record("a", "x", None);
        let ours = body(&record, "n", 1, ("now", "pod"));
        assert!(record.is_again(&ours));
        for (field, other) in [("type", "Warning"), ("reason", "Lost"), ("reportingComponent", "kubelet")] {
            let mut old = ours.clone();
            old[field] = other.into();
            assert!(!record.is_again(&old), "{field}");
        }
        let mut of_another = ours;
        of_another["involvedObject"]["uid"] = "v".into();
        assert!(!record.is_again(&of_another));
    }

    #[test]
    fn events_of_one_name_about_different_primaries_do_not_count_as_one() {
        // ER-7
        let called = |uid: &str, message: &str| {
            let record = record("a", message, None);
            Record { uid: uid.to_owned(), name: Some("disk".to_owned()), ..record }.id()
        };
        assert_eq!(called("u", "x"), called("u", "y"));
        assert_ne!(called("u", "x"), called("v", "x"));
    }
}
