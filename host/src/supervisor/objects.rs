//! Supplies the operators that are objects of the cluster, beside what another supply has: watches and reads them (OP rules).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use capstan_core::manifest::{Defaults, Filters, Keep, Operator};
use capstan_core::operator::ceiling::kinds::Told;
use capstan_core::operator::names;
use capstan_core::rollout::File;
use capstan_core::source::callback::Faults;
use capstan_core::source::filter::{Filter, PrimaryFilter};
use capstan_core::source::{Role, Source, Spec};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::supply::{Above, Again, Content, Loader, Supply};
use crate::client::{InForce, Kind};
use crate::informer::pool::{Pool, Subscription};
use crate::informer::{PageSize, Scope, Selectors, Subscriber};
use ceilings::Followed;
use known::Known;
use posted::{Read, kind};
use reads::Turn;

pub mod approvals;
pub mod ceilings;
mod home;
pub mod known;
mod posted;
mod reads;
pub mod telling;

/// Objects that change together are looked at together; those that come meanwhile, the next time.
const QUIET: Duration = Duration::from_millis(50);

/// How often it is looked at most rarely whether a namespace has been listed.
const LOOK: Duration = Duration::from_secs(5);

/// How long the first list is waited for before what there is besides is started.
const FIRST: Duration = Duration::from_secs(5);

/// The operators of the cluster, as they are watched.
pub struct Objects {
    known: Arc<Known>,
    _reader: AbortOnDropHandle<()>,
    /// The file of the ceilings, if there is one.
    ceilings: Option<Followed>,
    /// Is told that one has changed.
    changed: watch::Receiver<()>,
}

/// The same, beside another supply.
pub struct WithObjects {
    supply: Box<dyn Supply>,
    objects: Objects,
}

// === impl Objects ===

impl Objects {
    /// Watches the operators of the daemon's own namespace, and of those that have ceilings, which are followed if they are of a file. These defaults hold
    /// for them.
    pub fn watch(
        pool: &Pool,
        own: &Arc<str>,
        defaults: Defaults,
        (in_force, ceilings): (Arc<InForce>, Option<Followed>),
    ) -> Self {
        let (sender, changed) = watch::channel(());
        let pool = pool.clone();
        let tell = sender.clone();
        let join = move |namespace: &Arc<str>, changed: Arc<AtomicBool>| {
            let tell = tell.clone();
            let told = move || {
                // Whoever is woken looks at this namespace alone.
                changed.store(true, Ordering::Release);
                tell.send_modify(|()| ());
            };
            joined(&pool, namespace, ("operators", &kind()), told)
        };
        let known = Arc::new(Known::new(own, in_force, Arc::new(defaults), Box::new(join)));
        let reader = tokio::spawn(read(Arc::clone(&known), sender));
        Self { known, _reader: AbortOnDropHandle::new(reader), ceilings, changed }
    }

    /// Returns what is known of them, for whoever says it.
    pub fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known)
    }

    /// Waits until they have been listed, but not for long: there may be other operators.
    pub async fn listed(&mut self) {
        let listed = async {
            while !self.known.is_listed() || !matches!(self.known.next(Instant::now()), Turn::Nothing) {
                // Where a namespace has none, nobody tells that it has been listed.
                if let Ok(Err(_)) = timeout(QUIET, self.changed.changed()).await {
                    break;
                }
            }
        };
        if timeout(FIRST, listed).await.is_err() {
            tracing::warn!("the operators of the cluster can't be listed so far; /readyz?verbose says why");
        }
    }

    /// Waits until one of them is otherwise than when all were looked at last, or is to be looked at once more.
    async fn other(&mut self) {
        loop {
            let Self { known, changed, ceilings, .. } = self;
            changed.mark_unchanged();
            let file = async {
                match ceilings {
                    Some(ceilings) => ceilings.changed().await,
                    None => std::future::pending().await,
                }
            };
            let now = Instant::now();
            let from = known.differs(now);
            if from.is_some_and(|from| from <= now) {
                sleep(QUIET).await;
                return;
            }
            let rested = async {
                match from {
                    Some(from) => sleep_until(from).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = rested => {}
                changed = changed.changed() => if changed.is_err() {
                    // With the daemon.
                    return std::future::pending().await;
                },
                () = known.wanted() => return,
                () = file => return,
            }
        }
    }
}

/// Reads those that have changed, one after the other, for ever, and tells when one was read.
async fn read(known: Arc<Known>, tell: watch::Sender<()>) {
    let (mut changed, mut pause) = (tell.subscribe(), QUIET);
    loop {
        changed.mark_unchanged();
        let rest = match known.next(Instant::now()) {
            Turn::Read(object, under) => {
                let (defaults, begun) = (Arc::clone(&known.defaults), Instant::now());
                let (send, reading) = oneshot::channel();
                let read = object.clone();
                let work = move || drop(send.send(Read::of(&read, &defaults, under)));
                let begins = thread::Builder::new().name("operators".to_owned()).spawn(work);
                if let (Ok(_), Ok(read)) = (begins, reading.await) {
                    known.read(&object, read, begun.elapsed());
                    tell.send_modify(|()| ());
                    continue;
                }
                tracing::error!("an operator of the cluster can't be read: there is no thread for it");
                Some(begun + FIRST)
            }
            Turn::Rest(until) => Some(until),
            // Those of a namespace count once all have come, which nobody tells.
            Turn::Nothing if !known.is_listed() => {
                pause = LOOK.min(2 * pause);
                Some(Instant::now() + pause)
            }
            Turn::Nothing => {
                pause = QUIET;
                None
            }
        };
        let rested = async {
            match rest {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = known.unread.notified() => {}
            () = rested => {}
        }
    }
}

/// Watches the objects of one of the daemon's own kinds in a namespace, and tells when one has changed.
fn joined(
    pool: &Pool,
    namespace: &Arc<str>,
    (name, kind): (&'static str, &Kind),
    told: impl Fn() + Send + Sync + 'static,
) -> Subscription {
    let listener = Arc::new(move |_| told());
    let subscriber = Subscriber { source: Arc::new(Source::new(spec(name, kind))), listener };
    let scope = Scope {
        gvk: kind.gvk.clone(),
        namespace: Some(Arc::clone(namespace)),
        cluster: None,
        except: None,
        selectors: Selectors::default(),
        alone: None,
        page: PageSize::default(),
    };
    // Those of one namespace wait for nobody's of another, nor share what they may have (`NS-6`). No operator is called so.
    pool.of(&format!("{name} of {namespace}").into()).join(&scope, kind, subscriber)
}

/// Returns what is watched.
fn spec(name: &'static str, kind: &Kind) -> Spec {
    let filter = PrimaryFilter { generation_aware: false, finalizer: None };
    Spec {
        name: name.into(),
        gvk: kind.gvk.clone(),
        cluster: None,
        role: Role::Primary,
        filter: Filter::primary(filter, Filters::default()),
        indexes: BTreeMap::new(),
        fields: Keep::default().fields(),
        bounded: None,
        packed: false,
        faults: Arc::new(Faults::new(name, |_| {})),
    }
}

// === impl WithObjects ===

impl WithObjects {
    /// Returns a supply with these objects, too.
    pub fn new(supply: Box<dyn Supply>, objects: Objects) -> Self {
        Self { supply, objects }
    }
}

impl Supply for WithObjects {
    fn manifests(&mut self, before: &[Operator]) -> Vec<File> {
        let mut files = self.supply.manifests(before);
        let Objects { known, ceilings, .. } = &self.objects;
        files.extend(ceilings.as_ref().and_then(Followed::broken));
        let objects = known.look(before);
        let taken = names::taken(&files, before, &objects);
        let taken: BTreeMap<&Path, String> = taken.into_iter().collect();
        known.refuse(&taken);
        files.extend(objects.iter().filter(|object| !taken.contains_key(&*object.path)).cloned());
        files
    }

    fn above(&mut self, operators: &[Operator], told: &Told) -> Above {
        let Objects { known, ceilings, .. } = &mut self.objects;
        if let Some(ceilings) = ceilings {
            ceilings.look();
            known.join();
        }
        known.above(operators, told)
    }

    fn want(&mut self, operators: &[Operator]) {
        self.supply.want(operators);
    }

    fn content(&self, component: &Path) -> Content {
        self.supply.content(component)
    }

    fn changed(&mut self) -> BoxFuture<'_, Again> {
        let Self { supply, objects } = self;
        // Whoever waits has taken in what was read last.
        objects.known.settle();
        async move {
            tokio::select! {
                again = supply.changed() => again,
                () = objects.other() => Again::OnceChanged,
            }
        }
        .boxed()
    }

    fn loader(&self, again: Again) -> Box<dyn Loader> {
        self.supply.loader(again)
    }
}
