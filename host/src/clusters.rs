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
use capstan_core::room::Room;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::client::recorder::{Recorder, recorder};
use crate::client::{Access, ApiServer, Identity, Link};
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
}

/// What other clusters share with the daemon's own.
pub struct Own {
    /// The API server that has the Secrets.
    pub api: Arc<ApiServer>,
    /// Where informers count.
    pub metrics: Arc<Metrics>,
    /// What an informer, and what all of them together, may keep.
    pub size: (usize, Room),
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
    /// What reads its Secret, listens to it, and writes its Events.
    _tasks: [AbortOnDropHandle<()>; 3],
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
        Self { own, all: Mutex::default() }
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

    fn begin(&self, remote: &Remote) -> Other {
        let Own { api, metrics, size: (bound, room), stop, namespace, reach, identity } = &self.own;
        let other = ApiServer::of_other(Arc::clone(&remote.id), api.managers(), api.chance());
        let other = Arc::new(other);
        let size = (*bound, room.clone());
        let pool = Pool::new(Arc::clone(&other), Arc::clone(metrics), size, stop.child_token());
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
        let tasks = [
            runtime.spawn(keeper.keep()),
            runtime.spawn(async move { listening.listen(|| ()).await }),
            runtime.spawn(writer.run(stop.child_token())),
        ];
        let id = Arc::clone(&remote.id);
        Other { id, site: Site { api: other, pool }, recorder, _tasks: tasks.map(AbortOnDropHandle::new) }
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
        for other in self.0.all() {
            let up = ConstGauge::new(i64::from(other.site.api.trouble().is_none()));
            up.encode(family.encode_family(&[("cluster", &*other.id)])?)?;
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
mod tests {
    use capstan_core::object::Managers;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::tests::{Answer, Step, scripted};

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
            size: (1 << 20, Room::default()),
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
