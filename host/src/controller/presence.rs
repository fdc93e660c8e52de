//! Looks again whether the kinds are served that a running controller's dependents wait for, and has its primaries run when that changes
//! (`WF-11`).

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::manifest::{Condition, Controller};
use capstan_core::object::Gvk;
use tokio::time::{Instant, sleep};

use super::declared::Environment;
use super::handle::Handle;
use crate::client::ApiServer;

/// How often it is looked again. What a request is told meanwhile is heeded at once.
const EVERY: Duration = Duration::from_secs(10);

/// Looks for each version that runs, for as long as this is polled.
pub(super) async fn follow(handle: Arc<Handle>, environment: Arc<Environment>) {
    let mut edition = handle.edition.subscribe();
    // Whatever has flipped before: then its primaries run once too often.
    let mut heeded = 0;
    loop {
        edition.mark_unchanged();
        let running = handle.running();
        let kinds = running.as_ref().map(|declared| awaited(&declared.spec)).unwrap_or_default();
        let looking = async {
            match &running {
                Some(declared) if !kinds.is_empty() => {
                    look(&handle, &declared.site(&environment).api, &kinds, &mut heeded).await;
                }
                Some(_) | None => pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = edition.changed() => {
                if changed.is_err() {
                    // Never happens: the handle has the sender.
                    return;
                }
            }
            () = looking => {}
        }
    }
}

/// Returns the kinds on whose presence dependents are active.
fn awaited(spec: &Controller) -> BTreeSet<Gvk> {
    let active_by = |condition: &Option<Condition>| *condition == Some(Condition::CrdPresent);
    let dependents = spec.dependents().filter(|(_, dependent)| active_by(&dependent.conditions.activation));
    dependents.map(|(_, dependent)| dependent.gvk.clone()).collect()
}

/// Looks at kinds now and then, and at once if a request was told that one is not served; for ever.
async fn look(handle: &Handle, api: &ApiServer, kinds: &BTreeSet<Gvk>, heeded: &mut u64) {
    let presence = api.presence();
    let (mut flips, mut doubts) = (presence.flips(), presence.doubts());
    loop {
        doubts.mark_unchanged();
        let now = *flips.borrow_and_update();
        if kinds.iter().any(|gvk| presence.has_flipped(gvk, *heeded)) {
            tracing::info!("a kind of its dependents has come or gone: all primaries run");
            handle.queue.event_for_all(Instant::now());
        }
        *heeded = now;
        tokio::select! {
            biased;
            // An error would say that the API server is gone, which has the senders.
            Ok(()) = flips.changed() => continue,
            Ok(()) = doubts.changed() => {}
            () = sleep(EVERY) => {}
        }
        for gvk in kinds {
            if let Err(error) = api.look_again(gvk).await {
                // What was known holds.
                tracing::debug!(%error, "whether a kind is served can't be found out");
            }
        }
    }
}
