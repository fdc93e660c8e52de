//! Keeps a client and informers for each other cluster that operators use, and leads them where its Secret says at the time (CU rules).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use capstan_core::budget::Budget;
use capstan_core::cluster::{Cluster as _, Error};
use capstan_core::kubeconfig::Kubeconfig;
use capstan_core::manifest::Remote;
use capstan_core::object::{Gvk, ObjectRef};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::client::recorder::{Recorder, recorder};
use crate::client::{Access, ApiServer, Identity, Link};
use crate::informer::Memory;
use crate::informer::pool::Pool;
use crate::metrics::Metrics;

mod connect;

pub use connect::Reach;

/// From one time that a Secret is read to the next, at most.
const AGAIN: Duration = Duration::from_secs(15);

/// A Secret is not read sooner than this after the last time, however often its credentials are refused.
const REST: Duration = Duration::from_secs(2);

/// The other clusters that operators use. Each is there as long as somebody has it.
pub struct Clusters {
    own: Own,
    all: Mutex<BTreeMap<Remote, Weak<Other>>>,
    /// What writes Kubernetes Events there.
    writers: TaskTracker,
}

/// What other clusters share with the daemon's own.
pub struct Own {
    /// The API server that has the Secrets.
    pub api: Arc<ApiServer>,
    /// Where informers count.
    pub metrics: Arc<Metrics>,
    /// What informers may take.
    pub memory: Memory,
    /// Ends the informers.
    pub stop: CancellationToken,
    /// The namespace of the Secrets.
    pub namespace: Arc<str>,
    /// Which addresses may be reached.
    pub reach: Reach,
    /// Who reports Kubernetes Events (`ER-2`).
    pub identity: Arc<str>,
}

/// An API server, with the informers of its objects.
#[derive(Clone)]
pub struct Site {
    /// The API server.
    pub api: Arc<ApiServer>,
    /// The informers.
    pub pool: Pool,
}

/// Another cluster that an operator uses.
pub struct Other {
    /// The operator, and its name for the cluster.
    pub id: Arc<str>,
    /// What it is to controllers.
    pub site: Site,
    /// Takes Kubernetes Events about primaries that are there: those of others don't wait with them.
    pub recorder: Recorder,
    /// What reads its Secret, and listens to it.
    _tasks: [AbortOnDropHandle<()>; 2],
    /// Has its Events written that still wait, and no more.
    _last: DropGuard,
}

/// Reads the Secret of a cluster again and again.
struct Keeper {
    remote: Remote,
    secrets: Access,
    namespace: Arc<str>,
    api: Arc<ApiServer>,
    reach: Reach,
    /// What leads there now.
    known: Option<Kubeconfig>,
    /// The first server that the Secret has named.
    server: Option<String>,
}

impl Clusters {
    /// Returns no clusters yet.
    pub fn new(own: Own) -> Self {
        Self { own, all: Mutex::default(), writers: TaskTracker::new() }
    }

    /// Returns a cluster that an operator uses, which others of it may use already.
    pub fn of(&self, remote: &Remote) -> Arc<Other> {
        let mut all = self.all.lock();
        all.retain(|_, other| other.strong_count() > 0);
        if let Some(other) = all.get(remote).and_then(Weak::upgrade) {
            return other;
        }
        let other = Arc::new(self.begin(remote));
        all.insert(remote.clone(), Arc::downgrade(&other));
        other
    }

    /// Returns those that are in use.
    pub fn all(&self) -> Vec<Arc<Other>> {
        self.all.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns of each name whether the cluster can be reached. While another Secret takes the place of one, both have to lead there.
    fn up(&self) -> BTreeMap<Arc<str>, bool> {
        let mut up = BTreeMap::new();
        for other in self.all() {
            *up.entry(Arc::clone(&other.id)).or_insert(true) &= other.site.api.trouble().is_none();
        }
        up
    }

    /// Waits until the Kubernetes Events of all that were in use are written, once the daemon is to end.
    pub async fn ended(&self) {
        self.writers.close();
        self.writers.wait().await;
    }

    fn begin(&self, remote: &Remote) -> Other {
        let Own { api, metrics, memory, stop, namespace, reach, identity } = &self.own;
        let memory = memory.of_other();
        let other = ApiServer::of_other(Arc::clone(&remote.id), api.managers(), api.chance());
        let other = Arc::new(other.taking(memory.transit(format!("cluster {}", remote.id).into())));
        let pool = Pool::new(Arc::clone(&other), Arc::clone(metrics), memory, stop.child_token());
        let keeper = Keeper {
            remote: remote.clone(),
            secrets: Access::new(Arc::clone(api), Identity::Daemon),
            namespace: Arc::clone(namespace),
            api: Arc::clone(&other),
            reach: Arc::clone(reach),
            known: None,
            server: None,
        };
        let runtime = Handle::current();
        let listening = Arc::clone(&other);
        let (recorder, writer) = recorder(identity.to_string());
        let tasks = [runtime.spawn(keeper.keep()), runtime.spawn(async move { listening.listen(|| ()).await })];
        let last = stop.child_token();
        self.writers.spawn_on(writer.run(last.clone()), &runtime);
        let (id, tasks) = (Arc::clone(&remote.id), tasks.map(AbortOnDropHandle::new));
        Other { id, site: Site { api: other, pool }, recorder, _tasks: tasks, _last: last.drop_guard() }
    }
}

impl Keeper {
    /// Leads to the cluster what its Secret says, for ever.
    async fn keep(mut self) {
        loop {
            self.look().await;
            sleep(REST).await;
            tokio::select! {
                biased;
                () = self.api.refused() => {}
                () = sleep(self.api.chance().jitter(AGAIN)) => {}
            }
        }
    }

    async fn look(&mut self) {
        let read = self.read().await.map(|found| found.and_then(|found| self.heed(found)));
        let Remote { id, secret, .. } = &self.remote;
        let found = match read {
            Ok(found) => found,
            Err(error) if self.known.is_none() && self.api.closed().is_none() => Err(error.message),
            // What it said last goes on for as long as nobody can be asked.
            Err(error) => {
                tracing::debug!(cluster = %id, %error, "the kubeconfig of a cluster can't be read now");
                return;
            }
        };
        match found {
            Ok(None) => {}
            Ok(Some(client)) => {
                tracing::info!(cluster = %id, %secret, server = self.server.as_deref(), "using another cluster");
                self.api.lead(Link::Open(client));
            }
            Err(why) => {
                self.known = None;
                let why: Arc<str> = format!("Secret {}/{secret}: {why}", self.namespace).into();
                if self.api.closed().as_ref() != Some(&why) {
                    tracing::error!(cluster = %id, %why, "another cluster can't be used");
                    self.api.lead(Link::Closed(why));
                }
            }
        }
    }

    /// Reads the Secret. The inner error says why it may not be used.
    async fn read(&self) -> Result<Result<Kubeconfig, String>, Error> {
        let Remote { operator, secret, key, .. } = &self.remote;
        let gvk = Gvk { group: "".into(), version: "v1".into(), kind: "Secret".into() };
        let at = ObjectRef::namespaced(&self.namespace, secret);
        match self.secrets.get(&gvk, &at).await {
            Ok(Some(found)) => Ok(Kubeconfig::of_secret(found.json(), key, operator, &mut Budget::of_run())),
            Ok(None) => Ok(Err("there is none".to_owned())),
            Err(error) if error.is_outage() => Err(error),
            Err(error) => Ok(Err(error.message)),
        }
    }

    /// Returns a client if the kubeconfig is another one than before.
    fn heed(&mut self, found: Kubeconfig) -> Result<Option<kube::Client>, String> {
        if self.known.as_ref() == Some(&found) {
            return Ok(None);
        }
        // What is known of objects is of the cluster that it was.
        if let Some(server) = self.server.as_ref().filter(|server| **server != found.server) {
            return Err(format!(
                "it leads to another server now, {} and no more {server}; give that another name under `clusters` of the manifest, or start the daemon anew",
                found.server
            ));
        }
        let client = connect::connect(&found, &self.reach)?;
        self.server = Some(found.server.clone());
        self.known = Some(found);
        Ok(Some(client))
    }
}

impl fmt::Debug for Other {
    /// Writes the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Other({})", self.id)
    }
}

/// The metrics of other clusters, asked for when somebody looks.
#[derive(Debug)]
pub struct Up(pub Arc<Clusters>);

impl Collector for Up {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "1 as long as another cluster that operators use can be reached";
        let mut family = encoder.encode_descriptor("cluster_up", help, None, MetricType::Gauge)?;
        for (id, is_up) in self.0.up() {
            let up = ConstGauge::new(i64::from(is_up));
            up.encode(family.encode_family(&[("cluster", &*id)])?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Clusters {
    /// Writes the names of those in use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use capstan_core::guest::Event;
    use capstan_core::object::{Managers, Object};
    use serde_json::{Value, json};

    use super::*;
    use crate::backoff::Chance;
    use crate::client::recorder::Origin;
    use crate::client::tests::{Answer, Step, scripted};

    /// Returns another cluster whose API server gives these answers, for as long as the test leads there.
    pub(crate) fn other(id: &str, client: kube::Client) -> Arc<Other> {
        let id = Arc::from(id);
        let api = Arc::new(ApiServer::of_other(Arc::clone(&id), Managers::default(), &Chance::default()));
        api.lead(Link::Open(client));
        let memory = Memory::new(1 << 20, u64::MAX);
        let pool = Pool::new(Arc::clone(&api), Arc::default(), memory, CancellationToken::new());
        let nothing = || AbortOnDropHandle::new(Handle::current().spawn(std::future::ready(())));
        let tasks = std::array::from_fn(|_| nothing());
        let (recorder, _) = recorder("test".to_owned());
        let last = CancellationToken::new().drop_guard();
        Arc::new(Other { id, site: Site { api, pool }, recorder, _tasks: tasks, _last: last })
    }

    /// What the API server says of the Secret; none: that there is none.
    type Secret = Arc<Mutex<Option<Value>>>;

    fn encoded(text: &str) -> Value {
        serde_json::to_value(k8s_openapi::ByteString(text.into())).unwrap()
    }

    /// Returns a Secret for operator `pages` that leads to a server on this machine, where nobody listens.
    fn secret(port: u16, token: &str) -> Value {
        let authority = rcgen::generate_simple_self_signed(vec!["edge".to_owned()]).unwrap().cert.pem();
        let server = format!("https://127.0.0.1:{port}");
        let kubeconfig = json!({
            "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority-data": encoded(&authority) } }],
            "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        });
        json!({
            "metadata": { "name": "edge", "namespace": "home", "uid": "u", "resourceVersion": "1", "labels": { "capstan.dev/kubeconfig-for": "pages" } },
            "data": { "kubeconfig": encoded(&kubeconfig.to_string()) },
        })
    }

    /// Returns the clusters of a daemon whose API server has this Secret.
    fn clusters(secret: &Secret) -> Clusters {
        let secret = Arc::clone(secret);
        let (client, _) = scripted(move |path| match (path, &*secret.lock()) {
            ("/api/v1", _) => {
                let secrets = json!({ "name": "secrets", "kind": "Secret", "namespaced": true });
                Answer(Some(200), vec![Step::Comes(json!({ "resources": [secrets] }).to_string())])
            }
            (_, Some(secret)) => Answer(Some(200), vec![Step::Comes(secret.to_string())]),
            (_, None) => {
                let missing = json!({ "kind": "Status", "reason": "NotFound", "message": "not found", "code": 404 });
                Answer(Some(404), vec![Step::Comes(missing.to_string())])
            }
        });
        Clusters::new(Own {
            api: Arc::new(ApiServer::new(client, Managers::default())),
            metrics: Arc::default(),
            memory: Memory::new(1 << 20, u64::MAX),
            stop: CancellationToken::new(),
            namespace: "home".into(),
            reach: Arc::new(|_, _| Ok(())),
            identity: "test".into(),
        })
    }

    fn remote(operator: &str) -> Remote {
        Remote {
            id: format!("{operator}/edge").into(),
            operator: operator.into(),
            secret: "edge".into(),
            key: "kubeconfig".into(),
        }
    }

    /// Waits until a Secret has been read again, by the stopped clock.
    async fn read_again() {
        sleep(REST + AGAIN + Duration::from_secs(1)).await;
    }

    fn closed(other: &Other) -> String {
        other.site.api.closed().map_or_else(|| "open".to_owned(), |why| why.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn operators_have_clusters_of_their_own_which_their_controllers_share() {
        // CU-1
        let clusters = clusters(&Arc::new(Mutex::new(Some(secret(1, "a")))));
        let [one, same, other] = ["pages", "pages", "shop"].map(|operator| clusters.of(&remote(operator)));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        read_again().await;
        assert_eq!(closed(&one), "open");
        assert_eq!(
            closed(&other),
            "Secret home/edge: its label capstan.dev/kubeconfig-for does not name the operator shop"
        );
        drop((one, other));
        assert_eq!(clusters.all().len(), 1);
        drop(same);
        assert_eq!(clusters.all().len(), 0, "nobody has it any more");
    }

    #[tokio::test(start_paused = true)]
    async fn what_leads_to_a_cluster_is_what_its_secret_says_at_the_time() {
        // CU-2, CU-7
        let found = Arc::new(Mutex::new(None));
        let clusters = clusters(&found);
        let other = clusters.of(&remote("pages"));
        let mut relinked = other.site.api.relinked();
        for (says, expected, leads_anew) in [
            (None, "Secret home/edge: there is none", true),
            (None, "Secret home/edge: there is none", false),
            (Some(secret(1, "a")), "open", true),
            (Some(secret(1, "b")), "open", true),
            (
                Some(secret(2, "b")),
                "Secret home/edge: it leads to another server now, https://127.0.0.1:2 and no more https://127.0.0.1:1; give that another name under `clusters` of the manifest, or start the daemon anew",
                true,
            ),
            (Some(secret(1, "b")), "open", true),
            (
                Some(
                    json!({ "metadata": { "name": "edge", "namespace": "home", "uid": "u", "resourceVersion": "2" } }),
                ),
                "Secret home/edge: its label capstan.dev/kubeconfig-for does not name the operator pages",
                true,
            ),
        ] {
            *found.lock() = says;
            read_again().await;
            assert_eq!(closed(&other), expected);
            assert_eq!(relinked.has_changed().unwrap(), leads_anew, "{expected}");
            relinked.mark_unchanged();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_is_shown_once_while_another_secret_takes_the_place_of_one() {
        // CU-7
        let clusters = clusters(&Arc::new(Mutex::new(Some(secret(1, "a")))));
        let [before, after] =
            ["edge", "other"].map(|secret| clusters.of(&Remote { secret: secret.into(), ..remote("pages") }));
        before.site.api.lead(Link::Closed("no".into()));
        let up =
            |clusters: &Clusters| clusters.up().into_iter().map(|(id, up)| (id.to_string(), up)).collect::<Vec<_>>();
        assert_eq!(up(&clusters), [("pages/edge".to_owned(), false)]);
        drop(before);
        assert_eq!(up(&clusters), [("pages/edge".to_owned(), true)]);
        drop(after);
        assert_eq!(up(&clusters), []);
        let metrics = Arc::new(Metrics::default());
        let shown = |metrics: &Arc<Metrics>| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &metrics.registry()).unwrap();
            text.matches("informer_objects{kind=\"Page\"").count()
        };
        for (comes, expected) in [(true, 1), (true, 1), (false, 1), (false, 0)] {
            if comes {
                drop(metrics.informers.of("Page", None, Some("pages/edge")));
            } else {
                metrics.informers.forget("Page", None, Some("pages/edge"));
            }
            assert_eq!(shown(&metrics), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_events_of_a_cluster_that_nobody_uses_any_more_are_written() {
        // CU-6, ER-6
        let clusters = clusters(&Arc::new(Mutex::new(Some(secret(1, "a")))));
        let other = clusters.of(&remote("pages"));
        let (client, asked) = scripted(|path| match path {
            "/api/v1" => {
                let events = json!({ "name": "events", "kind": "Event", "namespaced": true });
                Answer(Some(200), vec![Step::Comes(json!({ "resources": [events] }).to_string())])
            }
            path if path.contains("/events/") => {
                let missing = json!({ "kind": "Status", "reason": "NotFound", "message": "not found", "code": 404 });
                Answer(Some(404), vec![Step::Comes(missing.to_string())])
            }
            _ => Answer(
                Some(201),
                vec![Step::Comes(
                    json!({ "metadata": { "namespace": "n", "name": "e", "uid": "u", "resourceVersion": "1" } })
                        .to_string(),
                )],
            ),
        });
        read_again().await;
        other.site.api.lead(Link::Open(client));
        let gvk = Gvk { group: "".into(), version: "v1".into(), kind: "ConfigMap".into() };
        let page = r#"{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"1"}}"#;
        let page = Object::parse(page, &gvk, &Managers::default()).unwrap();
        let origin = Origin {
            api: Access::new(Arc::clone(&other.site.api), Identity::Daemon),
            plugin: "pages/p".into(),
            controller: "c".into(),
            gvk,
            owner_reference: false,
            dropped: prometheus_client::metrics::counter::Counter::default(),
        };
        let event = Event {
            warning: false,
            reason: "Last".to_owned(),
            message: "words".to_owned(),
            key: None,
            action: None,
            component: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        other.recorder.publish(&origin, &page, event, None);
        drop((origin, other));
        clusters.ended().await;
        let written = asked.lock().iter().filter(|path| path.contains("/namespaces/n/events?")).count();
        assert_eq!(written, 1, "{:?}", asked.lock());
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_has_not_changed_leads_nowhere_else() {
        // CU-2
        let clusters = clusters(&Arc::new(Mutex::new(Some(secret(1, "a")))));
        let other = clusters.of(&remote("pages"));
        read_again().await;
        let relinked = other.site.api.relinked();
        read_again().await;
        assert_eq!((closed(&other).as_str(), relinked.has_changed().unwrap()), ("open", false), "watches go on");
    }
}
