//! Waits for the values of `config` that Secrets and ConfigMaps have, and reads them again and again (CV rules).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstan_core::budget::Budget;
use capstan_core::cluster::Cluster as _;
use capstan_core::granted;
use capstan_core::manifest::{Holder, ServiceAccount, Tenant};
use capstan_core::object::{Gvk, ObjectRef};
use capstan_core::rollout::values::rounds::{Reads, Rounds};
use capstan_core::rollout::values::{Asked, Known};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::client::{Access, ApiServer, Identity};

/// So many objects are asked for at once.
const AT_ONCE: usize = 4;

/// Looks up what is known of a token; `None` if it has not been read.
pub type Tokens = Arc<dyn Fn(&Asked) -> Option<Known> + Send + Sync>;

/// The values that operators ask for, as they were read last.
pub(super) struct Values {
    shared: Arc<Shared>,
    _reader: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// What is asked for; `None` until it has been read.
    known: Mutex<BTreeMap<Asked, Option<Known>>>,
    /// More is asked for.
    asked: Notify,
    /// What is known has changed.
    changed: Notify,
}

/// Reads the values.
struct Reader {
    shared: Arc<Shared>,
    api: Arc<ApiServer>,
    namespace: Arc<str>,
}

/// An object that has values: in what, its name, and in whose namespace it is.
type Place = (Holder, Arc<str>, Option<Arc<Tenant>>);

impl Values {
    /// Returns nothing yet. Objects are read from the daemon's own namespace, or that of a tenant in the name of its account, on the current runtime.
    pub(super) fn new(api: &Arc<ApiServer>, namespace: &Arc<str>) -> Self {
        let shared = Arc::<Shared>::default();
        let reader = Reader { shared: Arc::clone(&shared), api: Arc::clone(api), namespace: Arc::clone(namespace) };
        Self { shared, _reader: AbortOnDropHandle::new(tokio::spawn(reader.keep())) }
    }

    /// Sets what is asked for: from now on it is read.
    pub(super) fn want(&self, asked: BTreeSet<Asked>) {
        let mut known = self.shared.known.lock();
        known.retain(|value, _| asked.contains(value));
        for value in asked {
            known.entry(value).or_insert_with(|| {
                self.shared.asked.notify_one();
                None
            });
        }
    }

    /// Returns what is known of a value; `None` if it has not been read.
    pub(super) fn known(&self, asked: &Asked) -> Option<Known> {
        self.shared.known.lock().get(asked)?.clone()
    }

    /// Returns what looks up what is known of a value, for others.
    pub(super) fn reader(&self) -> Tokens {
        let shared = Arc::clone(&self.shared);
        Arc::new(move |asked| shared.known.lock().get(asked)?.clone())
    }

    /// Waits until what is known has changed. If the future is dropped, no change is lost.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Shared {
    fn is_any_unread(&self) -> bool {
        self.known.lock().values().any(Option::is_none)
    }
}

impl Reader {
    /// Reads what is asked for, for ever.
    async fn keep(self) {
        let jitter = |pause| self.api.chance().jitter(pause);
        let mut rounds = Rounds::new(Instant::now());
        loop {
            let reads = rounds.due(Instant::now());
            let each = stream::iter(self.objects(reads)).map(|place| self.read(place));
            let changed = each.buffer_unordered(AT_ONCE).fold(false, async |changed, now| changed | now).await;
            if changed {
                self.shared.changed.notify_one();
            }
            let now = Instant::now();
            rounds.finish(reads, now, jitter);
            let next = rounds.next(self.shared.is_any_unread(), now, jitter);
            tokio::select! {
                () = self.shared.asked.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Returns the objects that have what is to be read.
    fn objects(&self, reads: Reads) -> BTreeSet<Place> {
        let known = self.shared.known.lock();
        let due = known.iter().filter(|(_, known)| reads == Reads::All || known.is_none());
        due.map(|(asked, _)| place(asked)).collect()
    }

    /// Reads an object, and says whether what is known has changed by it. What was known goes on for as long as nobody can be asked.
    async fn read(&self, place: Place) -> bool {
        let (holder, name, tenant) = &place;
        let gvk = Gvk { group: "".into(), version: "v1".into(), kind: holder.kind().into() };
        let (api, namespace) = self.asking(tenant.as_deref());
        let found = match api.get(&gvk, &ObjectRef::namespaced(namespace, name)).await {
            Ok(found) => Ok(found),
            Err(error) if error.is_outage() => {
                tracing::debug!(object = %name, %error, "a value of `config` can't be read now");
                return false;
            }
            Err(error) => Err(error.message),
        };
        let value = |Asked { operator, value }: &Asked| match &found {
            Ok(Some(object)) => {
                let operator = tenant.as_ref().map_or(operator, |tenant| &tenant.operator);
                granted::value((*holder, object.json()), &value.key, operator, &mut Budget::of_run())
            }
            Ok(None) => Err(format!("there is none in the namespace {namespace}")),
            Err(why) => Err(why.clone()),
        };
        let asked: Vec<Asked> = {
            let known = self.shared.known.lock();
            known.keys().filter(|asked| self::place(asked) == place).cloned().collect()
        };
        let mut changed = false;
        for asked in asked {
            let now: Known = value(&asked).map(Arc::from).map_err(Arc::from);
            if let Some(known) = self.shared.known.lock().get_mut(&asked)
                && known.as_ref() != Some(&now)
            {
                *known = Some(now);
                changed = true;
            }
        }
        changed
    }
}

impl Reader {
    /// Returns the API server as it is asked for what is in a tenant's namespace or the daemon's own, and which that is.
    fn asking<'a>(&'a self, tenant: Option<&'a Tenant>) -> (Access, &'a Arc<str>) {
        let account = tenant.map(|tenant| ServiceAccount {
            name: Arc::clone(&tenant.account),
            namespace: Some(Arc::clone(&tenant.namespace)),
        });
        let who = Identity::of(account.as_ref(), &self.namespace);
        (Access::new(Arc::clone(&self.api), who), tenant.map_or(&self.namespace, |tenant| &tenant.namespace))
    }
}

fn place(Asked { value, .. }: &Asked) -> Place {
    (value.holder, Arc::clone(&value.name), value.tenant.clone())
}

#[cfg(test)]
mod tests {
    use capstan_core::manifest::ConfigValue;
    use capstan_core::object::Managers;
    use capstan_core::rollout::values::rounds::{AGAIN, SOON};
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::client::tests::{Answer, Step, scripted};

    /// What the API server says of the ConfigMap: its status, and its body.
    type Said = Arc<Mutex<(u16, Value)>>;

    fn map(label: &str, text: &str) -> (u16, Value) {
        let metadata = json!({ "name": "looks", "namespace": "home", "uid": "u", "resourceVersion": "1", "labels": { "capstan.dev/config-for": label } });
        (200, json!({ "metadata": metadata, "data": { "theme": text } }))
    }

    fn values(said: &Said) -> Values {
        let said = Arc::clone(said);
        let (client, _) = scripted(move |path| {
            if path == "/api/v1" {
                let maps = json!({ "name": "configmaps", "kind": "ConfigMap", "namespaced": true });
                return Answer(Some(200), vec![Step::Comes(json!({ "resources": [maps] }).to_string())]);
            }
            if path != "/api/v1/namespaces/home/configmaps/looks" {
                let status = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "no" });
                return Answer(Some(404), vec![Step::Comes(status.to_string())]);
            }
            let (status, body) = &*said.lock();
            Answer(Some(*status), vec![Step::Comes(body.to_string())])
        });
        Values::new(&Arc::new(ApiServer::new(client, Managers::default())), &"home".into())
    }

    fn asked(operator: &str) -> Asked {
        let value = ConfigValue { holder: Holder::ConfigMap, name: "looks".into(), key: "theme".into(), tenant: None };
        Asked { operator: operator.into(), value }
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_what_its_object_says_at_the_time_and_an_outage_changes_nothing() {
        // CV-1, CV-3
        let said = Arc::new(Mutex::new((503, json!({ "kind": "Status", "code": 503, "message": "away" }))));
        let values = values(&said);
        let pages = asked("pages");
        values.want(BTreeSet::from([pages.clone()]));
        let status = |code: u16, reason: &str| {
            (code, json!({ "kind": "Status", "code": code, "reason": reason, "message": "no" }))
        };
        let refused = "its label capstan.dev/config-for does not name the operator pages";
        for (says, expected, within) in [
            (None, "unread", AGAIN),
            // An outage that ends is seen at once.
            (Some(map("pages", "dark")), "dark", SOON),
            (Some(status(503, "")), "dark", AGAIN),
            (Some(map("pages", "light")), "light", AGAIN),
            (Some(map("shop", "light")), refused, AGAIN),
            (Some(status(404, "NotFound")), "there is none in the namespace home", AGAIN),
            (Some(map("shop_pages", "light")), "light", AGAIN),
        ] {
            if let Some(says) = says {
                *said.lock() = says;
            }
            sleep(within * 2).await;
            let known = values.known(&pages).map_or_else(|| "unread".into(), |known| known.unwrap_or_else(|why| why));
            assert_eq!(&*known, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_for_later_is_read_at_once_and_what_nobody_asks_for_is_forgotten() {
        // CV-1
        let said = Arc::new(Mutex::new(map("pages", "dark")));
        let values = values(&said);
        values.want(BTreeSet::from([asked("pages")]));
        values.changed().await;
        let begun = Instant::now();
        values.want(BTreeSet::from([asked("pages"), asked("shop")]));
        values.changed().await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(values.known(&asked("shop")).is_some_and(|known| known.is_err()));
        values.want(BTreeSet::new());
        assert_eq!(values.known(&asked("pages")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_keeps_asking_for_something_new_does_not_keep_others_from_what_is_read_again() {
        // CV-1
        let said = Arc::new(Mutex::new(map("pages", "dark")));
        let values = values(&said);
        let pages = asked("pages");
        values.want(BTreeSet::from([pages.clone()]));
        values.changed().await;
        *said.lock() = map("pages", "light");
        let begun = Instant::now();
        for edit in 0.. {
            if values.known(&pages) == Some(Ok("light".into())) {
                break;
            }
            assert!(begun.elapsed() < AGAIN * 2, "it is not read again");
            // Of another object: what is read of one is known of all that is asked for there.
            let value = ConfigValue { name: format!("edit-{edit}").into(), ..pages.value.clone() };
            values.want(BTreeSet::from([pages.clone(), Asked { value, ..pages.clone() }]));
            sleep(SOON / 2).await;
        }
    }
}
