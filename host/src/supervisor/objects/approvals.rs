//! Watches the objects that approve versions of operators, from the first operator on that asks for them (AP rules).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use capstan_core::budget::Budget;
use capstan_core::manifest::{OnNewVersion, Operator};
use capstan_core::object::{Gvk, ObjectRef, Scope};
use capstan_core::operator::approval::{Identity, approved};
use capstan_core::operator::wants::Wants;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::joined;
use super::known::Known;
use crate::client::Kind;
use crate::informer::pool::{Pool, Subscription};

/// How long the first list is waited for before versions are told that nobody has approved them.
const FIRST: Duration = Duration::from_secs(5);

/// How often it is looked at whether it is there.
const LOOK: Duration = Duration::from_millis(50);

/// Approvals of the daemon's own namespace.
pub struct Approvals {
    /// The operators that are objects, whose status says what was in force.
    known: Arc<Known>,
    pool: Pool,
    namespace: Arc<str>,
    /// What holds whatever operators say.
    floor: OnNewVersion,
    watched: OnceLock<Watched>,
}

struct Watched {
    objects: Subscription,
    changed: tokio::sync::Mutex<watch::Receiver<()>>,
    /// Until when the first list is waited for.
    until: Instant,
    /// Whether somebody waits for it.
    is_awaited: AtomicBool,
}

/// Returns the kind of approvals.
pub(in crate::supervisor) fn kind() -> Kind {
    let gvk = Gvk { group: "capstan.dev".into(), version: "v1alpha1".into(), kind: "OperatorApproval".into() };
    Kind { gvk, plural: "operatorapprovals".into(), scope: Scope::Namespaced }
}

impl Approvals {
    /// Returns those of a namespace. All operators ask for them if the floor says so.
    pub fn new(pool: &Pool, namespace: &Arc<str>, known: Arc<Known>, floor: OnNewVersion) -> Self {
        Self { known, pool: pool.clone(), namespace: Arc::clone(namespace), floor, watched: OnceLock::new() }
    }

    /// Returns what holds whatever operators say.
    pub fn floor(&self) -> OnNewVersion {
        self.floor
    }

    /// Returns the namespace that they are in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Has them watched from now on.
    pub fn want(&self) {
        self.watched.get_or_init(|| {
            let (sender, changed) = watch::channel(());
            let objects =
                joined(&self.pool, &self.namespace, ("approvals", &kind()), move || sender.send_modify(|()| ()));
            let changed = tokio::sync::Mutex::new(changed);
            Watched { objects, changed, until: Instant::now() + FIRST, is_awaited: AtomicBool::new(false) }
        });
    }

    /// Whether it is known which there are, or has been waited for long enough. If not, [`Approvals::changed`] tells of it.
    pub fn are_known(&self) -> bool {
        self.watched.get().is_some_and(|watched| {
            let are_known = watched.are_known();
            watched.is_awaited.store(!are_known, Ordering::Relaxed);
            are_known
        })
    }

    /// Returns the version of an operator that is approved.
    pub fn of(&self, operator: &str) -> Option<Identity> {
        let objects = &self.watched.get()?.objects;
        let object = objects.cache.get(&ObjectRef::namespaced(&self.namespace, operator))?;
        let (_, version) = approved(&object.tree(&mut Budget::of_run()).ok()?)?;
        Some(version)
    }

    /// Returns the version of an operator that was in force when a daemon ended, as its status says; `None` if it is in a file. So many runs
    /// of it may be under way at once.
    pub fn was_in_force(&self, operator: &Operator, most: usize) -> Option<Identity> {
        let (mut then, components) = self.known.last_in_force(operator.origin.file())?;
        then.cap_concurrency(most);
        Some(Identity { components, given: Wants::of_manifest(&then).given() })
    }

    /// Returns what the version of an operator says of newer ones that was in force when a daemon ended, as far as its status remembers it.
    pub fn said_last(&self, operator: &Operator) -> OnNewVersion {
        self.known.last_said(operator.origin.file())
    }

    /// Waits until there may be others, or it is known which there are. If the future is dropped, no change is lost.
    pub async fn changed(&self) {
        let Some(watched) = self.watched.get() else {
            return std::future::pending().await;
        };
        let mut changed = watched.changed.lock().await;
        let known = async {
            while watched.is_awaited.load(Ordering::Relaxed) {
                if watched.are_known() {
                    watched.is_awaited.store(false, Ordering::Relaxed);
                    return;
                }
                sleep(LOOK).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            changed = changed.changed() => if changed.is_err() {
                // With the daemon.
                std::future::pending::<()>().await;
            },
            () = known => {}
        }
    }
}

impl Watched {
    fn are_known(&self) -> bool {
        self.objects.is_filled() || self.until <= Instant::now()
    }
}
