//! Waits for the values of `config` that Secrets and ConfigMaps have, and reads them again and again (CV rules).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::budget::Budget;
use capstan_core::cluster::Cluster as _;
use capstan_core::granted;
use capstan_core::manifest::{Holder, ServiceAccount, Tenant};
use capstan_core::object::{Gvk, ObjectRef};
use capstan_core::operator::tenant;
use capstan_core::rollout::values::rounds::{Reads, Rounds};
use capstan_core::rollout::values::{Asked, Known};
use capstan_core::turns::Turns;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::client::{Access, ApiServer, Identity};

/// So many objects are asked for at once, and of those by one team: much that one asks for keeps nobody else waiting.
const AT_ONCE: (usize, usize) = (4, 1);

/// From one object that an operator asks for to the next.
const PACE: Duration = Duration::from_millis(10);

/// Looks up what is known of a token; `None` if it has not been read.
pub type Tokens = Arc<dyn Fn(&Asked) -> Option<Known> + Send + Sync>;

/// The values that operators ask for, as they were read last. Those of each operator are read by themselves.
pub(super) struct Values {
    api: Arc<ApiServer>,
    namespace: Arc<str>,
    turns: Turns,
    shared: Arc<Shared>,
    readers: Mutex<BTreeMap<Arc<str>, AbortOnDropHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    operators: Mutex<BTreeMap<Arc<str>, Arc<Operator>>>,
    /// What is known has changed.
    changed: Notify,
}

/// What one operator asks for.
#[derive(Default)]
struct Operator {
    /// By objects; a value is `None` until it has been read.
    known: Mutex<BTreeMap<Place, BTreeMap<Asked, Option<Known>>>>,
    /// More is asked for.
    asked: Notify,
}

/// Reads the values of an operator.
struct Reader {
    shared: Arc<Shared>,
    operator: Arc<Operator>,
    team: Arc<str>,
    turns: Turns,
    api: Arc<ApiServer>,
    namespace: Arc<str>,
}

/// An object that has values: in what, its name, and in whose namespace it is.
type Place = (Holder, Arc<str>, Option<Arc<Tenant>>);

impl Values {
    /// Returns nothing yet. Objects are read from the daemon's own namespace, or that of a tenant in the name of its account, on the current runtime.
    pub(super) fn new(api: &Arc<ApiServer>, namespace: &Arc<str>) -> Self {
        let (all, each) = AT_ONCE;
        let turns = Turns::new(all, each);
        Self {
            api: Arc::clone(api),
            namespace: Arc::clone(namespace),
            turns,
            shared: Arc::default(),
            readers: Mutex::default(),
        }
    }

    /// Sets what is asked for: from now on it is read.
    pub(super) fn want(&self, asked: BTreeSet<Asked>) {
        let mut wanted = BTreeMap::<Arc<str>, BTreeMap<Place, BTreeSet<Asked>>>::new();
        for asked in asked {
            let places = wanted.entry(Arc::clone(&asked.operator)).or_default();
            places.entry(place(&asked)).or_default().insert(asked);
        }
        let (mut operators, mut readers) = (self.shared.operators.lock(), self.readers.lock());
        operators.retain(|name, _| wanted.contains_key(name));
        readers.retain(|name, _| wanted.contains_key(name));
        for (name, places) in wanted {
            let operator = operators.entry(Arc::clone(&name)).or_default();
            operator.want(places);
            let reader = || AbortOnDropHandle::new(tokio::spawn(self.reader(&name, operator).keep()));
            readers.entry(Arc::clone(&name)).or_insert_with(reader);
        }
    }

    fn reader(&self, name: &str, operator: &Arc<Operator>) -> Reader {
        Reader {
            shared: Arc::clone(&self.shared),
            operator: Arc::clone(operator),
            team: tenant::team(name),
            turns: self.turns.clone(),
            api: Arc::clone(&self.api),
            namespace: Arc::clone(&self.namespace),
        }
    }

    /// Returns what is known of a value; `None` if it has not been read.
    pub(super) fn known(&self, asked: &Asked) -> Option<Known> {
        self.shared.known(asked)
    }

    /// Returns what looks up what is known of a value, for others.
    pub(super) fn tokens(&self) -> Tokens {
        let shared = Arc::clone(&self.shared);
        Arc::new(move |asked| shared.known(asked))
    }

    /// Waits until what is known has changed. If the future is dropped, no change is lost.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Shared {
    fn known(&self, asked: &Asked) -> Option<Known> {
        let operator = self.operators.lock().get(&asked.operator).cloned()?;
        operator.known.lock().get(&place(asked))?.get(asked)?.clone()
    }
}

impl Operator {
    fn want(&self, places: BTreeMap<Place, BTreeSet<Asked>>) {
        // Held all the time: nobody may find nothing meanwhile.
        let mut all = self.known.lock();
        let mut before = std::mem::take(&mut *all);
        let mut is_more = false;
        let known = places.into_iter().map(|(place, asked)| {
            let mut there = before.remove(&place).unwrap_or_default();
            let values = asked.into_iter().map(|asked| {
                let known = there.remove(&asked);
                is_more |= known.is_none();
                (asked, known.flatten())
            });
            (place, values.collect())
        });
        *all = known.collect();
        drop(all);
        if is_more {
            self.asked.notify_one();
        }
    }

    /// Returns the objects that have what is to be read.
    fn objects(&self, reads: Reads) -> Vec<Place> {
        let known = self.known.lock();
        let due = known.iter().filter(|(_, values)| reads == Reads::All || values.values().any(Option::is_none));
        due.map(|(place, _)| place.clone()).collect()
    }

    /// Takes what an object says now, and returns true if what is known has changed by it.
    fn take(&self, place: &Place, value: impl Fn(&Asked) -> Result<String, String>) -> bool {
        let mut changed = false;
        for (asked, known) in self.known.lock().get_mut(place).into_iter().flatten() {
            let now: Known = value(asked).map(Arc::from).map_err(Arc::from);
            changed |= known.as_ref() != Some(&now);
            *known = Some(now);
        }
        changed
    }
}

impl Reader {
    /// Reads what is asked for, for ever.
    async fn keep(self) {
        let jitter = |pause| self.api.chance().jitter(pause);
        let mut rounds = Rounds::new(Instant::now());
        loop {
            let reads = rounds.due(Instant::now());
            for place in self.operator.objects(reads) {
                let turn = self.turns.wait(&self.team).await;
                let changed = self.read(&place).await;
                drop(turn);
                if changed {
                    self.shared.changed.notify_one();
                }
                sleep(PACE).await;
            }
            let now = Instant::now();
            rounds.finish(reads, now, jitter);
            let is_any_unread = !self.operator.objects(Reads::Unread).is_empty();
            let next = rounds.next(is_any_unread, now, jitter);
            tokio::select! {
                () = self.operator.asked.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Reads an object, and says whether what is known has changed by it. What was known goes on for as long as nobody can be asked.
    async fn read(&self, place: &Place) -> bool {
        let (holder, name, tenant) = place;
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
        self.operator.take(place, |Asked { operator, value }| match &found {
            Ok(Some(object)) => {
                let operator = tenant.as_ref().map_or(operator, |tenant| &tenant.operator);
                granted::value((*holder, object.json()), &value.key, operator, &mut Budget::of_run())
            }
            Ok(None) => Err(format!("there is none in the namespace {namespace}")),
            Err(why) => Err(why.clone()),
        })
    }

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
    use super::*;
    use crate::client::tests::{Answer, Step, scripted};
    use capstan_core::manifest::ConfigValue;
    use capstan_core::object::Managers;
    use capstan_core::rollout::values::rounds::{AGAIN, SOON};
    use serde_json::{Value, json};

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
    async fn much_that_one_team_asks_for_keeps_no_other_from_what_has_changed() {
        // CV-1
        let said = Arc::new(Mutex::new(map("pages", "dark")));
        let values = values(&said);
        let pages = asked("pages");
        let absent = (0..4000).map(|n| {
            let value = ConfigValue { name: format!("absent-{n}").into(), ..pages.value.clone() };
            Asked { operator: format!("greedy.{}", n % 4).into(), value }
        });
        values.want(absent.chain([pages.clone()]).collect());
        sleep(SOON).await;
        assert_eq!(values.known(&pages), Some(Ok("dark".into())));
        *said.lock() = map("pages", "light");
        sleep(AGAIN + SOON).await;
        assert_eq!(values.known(&pages), Some(Ok("light".into())));
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
