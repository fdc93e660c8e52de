//! Writes Kubernetes Events about primaries, best effort, without ever holding a run up (ER rules).

use std::sync::Arc;

use capstan_core::budget::Budget;
use capstan_core::cluster::{Cluster, Error, Target, Verb, Write};
use capstan_core::guest::Event;
use capstan_core::object::{Gvk, Object, ObjectRef};
use k8s_openapi::jiff::{Timestamp, Unit};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::ApiServer;

/// Events waiting to be written; beyond that they are dropped, because what sends them must not wait.
const WAITING: usize = 256;

/// `ER-4`: the longest name of an object.
const NAME: usize = 253;

/// Takes events; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Record>,
}

/// Writes the events that recorders took.
pub struct Writer {
    api: Arc<ApiServer>,
    instance: String,
    queue: mpsc::Receiver<Record>,
}

struct Record {
    controller: Arc<str>,
    gvk: Gvk,
    about: Object,
    event: Event,
}

/// Returns a recorder, and the writer to run as a task. `instance` is who reports (`ER-2`): the pod or host name.
pub fn recorder(api: Arc<ApiServer>, instance: String) -> (Recorder, Writer) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (
        Recorder { queue: sender },
        Writer {
            api,
            instance,
            queue: receiver,
        },
    )
}

impl Recorder {
    /// Takes an event about a primary, or drops it with a warning when too many wait.
    pub fn publish(&self, controller: &Arc<str>, gvk: &Gvk, about: &Object, event: Event) {
        let record = Record {
            controller: Arc::clone(controller),
            gvk: gvk.clone(),
            about: about.clone(),
            event,
        };
        if let Err(refused) = self.queue.try_send(record) {
            let reason = match refused {
                mpsc::error::TrySendError::Full(_) => "too many wait",
                mpsc::error::TrySendError::Closed(_) => "shutting down",
            };
            tracing::warn!(%controller, key = %about.key(), reason, "kubernetes event dropped");
        }
    }
}

impl Writer {
    /// Writes events until all recorders are gone.
    pub async fn run(mut self) {
        while let Some(record) = self.queue.recv().await {
            // ER-6: a failure is logged and nothing else.
            if let Err(error) = self.write(&record).await {
                tracing::warn!(controller = %record.controller, key = %record.about.key(), %error, "kubernetes event not written");
            }
        }
    }

    async fn write(&self, record: &Record) -> Result<(), Error> {
        let gvk = Gvk {
            group: "".into(),
            version: "v1".into(),
            kind: "Event".into(),
        };
        // ER-3: events about cluster-scoped objects go to `default`.
        let namespace = record.about.key().namespace.as_deref().unwrap_or("default");
        let key = ObjectRef::namespaced(namespace, &name(record));
        let now = Timestamp::now()
            .round(Unit::Second)
            .unwrap_or_default()
            .to_string();
        let manager: Arc<str> = "capstan".into();
        let verb = match self.api.get(&gvk, &key).await? {
            None => Verb::Create {
                body: body(record, &key, &now, &self.instance).to_string(),
                manager,
            },
            Some(old) => {
                // ER-5: upon the version that was read.
                let count = old
                    .tree(&mut Budget::of_run())
                    .ok()
                    .and_then(|tree| tree.get("count")?.as_u64())
                    .unwrap_or(1);
                let patch = json!({
                    "metadata": { "resourceVersion": old.version().to_string() },
                    "count": count + 1, "lastTimestamp": now, "message": record.event.message,
                });
                Verb::MergePatch {
                    body: patch.to_string(),
                    manager,
                }
            }
        };
        self.api
            .write(Write {
                target: Target::object(gvk, key),
                verb,
            })
            .await
            .map(|_| ())
    }
}

/// `ER-4`: the same event has the same name, across restarts and replicas.
fn name(record: &Record) -> String {
    let Record {
        controller,
        gvk,
        about,
        event,
    } = record;
    let kind = if event.warning { "Warning" } else { "Normal" };
    let component = event.component.as_deref().unwrap_or(controller);
    let told_apart = event.key.as_deref().unwrap_or(&event.message);
    let parts = [
        &*gvk.kind,
        &about.header().uid,
        kind,
        &event.reason,
        component,
        told_apart,
    ]
    .join("\0");
    let digest = ring::digest::digest(&ring::digest::SHA256, parts.as_bytes());
    // The first half of the digest, as 32 digits.
    let half = digest
        .as_ref()
        .iter()
        .take(16)
        .fold(0_u128, |n, byte| n << 8 | u128::from(*byte));
    let hex = format!("{half:032x}");
    let object: String = about
        .key()
        .name
        .chars()
        .take(NAME - 1 - hex.len())
        .collect();
    format!("{object}.{hex}")
}

/// `ER-2`: the Event as it is created.
fn body(record: &Record, key: &ObjectRef, now: &str, instance: &str) -> Value {
    let Record {
        controller,
        gvk,
        about,
        event,
    } = record;
    let component = event.component.as_deref().unwrap_or(controller);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": &*key.name, "namespace": key.namespace.as_deref(), "labels": event.labels, "annotations": event.annotations },
        "involvedObject": {
            "apiVersion": gvk.api_version(), "kind": &*gvk.kind, "name": &*about.key().name, "namespace": about.key().namespace.as_deref(),
            "uid": about.header().uid, "resourceVersion": about.version().to_string(),
        },
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "message": event.message,
        "action": event.action.as_deref().unwrap_or(""),
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "reportingComponent": component,
        "reportingInstance": instance,
        "source": { "component": component },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use capstan_core::object::Managers;

    fn record(page: &str, message: &str, key: Option<&str>) -> Record {
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let text =
            json!({ "metadata": { "name": page, "namespace": "n", "uid": "u" } }).to_string();
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
            about: Object::parse(&text, &gvk, &Managers::default()).unwrap(),
            gvk,
            event,
        }
    }

    #[test]
    fn events_with_the_same_key_have_the_same_name() {
        // ER-4
        assert_eq!(
            name(&record("a", "x", Some("k"))),
            name(&record("a", "y", Some("k")))
        );
        assert_ne!(name(&record("a", "x", None)), name(&record("a", "y", None)));
    }

    #[test]
    fn a_name_is_never_too_long() {
        assert_eq!(name(&record(&"a".repeat(253), "x", None)).len(), 253);
    }
}
