//! Decides whether somebody who is deployed works on the primaries of this folder, and waits until somebody does: there are never two writers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::deployed::{self, Place};
use crate::client::told;
use crate::logging::Log;

/// How often it is looked again: whoever installs a chart meanwhile does not know of this daemon.
const AGAIN: Duration = Duration::from_secs(30);

/// Looks for daemons that are deployed. Cheap to clone.
#[derive(Clone)]
pub(super) struct Lookout {
    client: kube::Client,
    log: Log,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// Where primaries are, by each manifest of which it is known that nobody else works on them, as one of them may not have come into force.
    places: BTreeSet<Place>,
    /// Why it can't be found out, as it was told.
    unseen: Option<String>,
}

impl Lookout {
    pub(super) fn new(client: kube::Client, log: Log) -> Self {
        Self { client, log, known: Arc::default() }
    }

    /// Makes sure that nobody else works on primaries at these places, as far as that can be seen; those of the last time were looked at then.
    ///
    /// # Errors
    /// Who does.
    pub(super) async fn is_alone(&self, places: BTreeSet<Place>) -> anyhow::Result<()> {
        let is_known = places.is_subset(&self.known.lock().places);
        if !is_known {
            self.look(&places).await?;
        }
        self.known.lock().places.extend(places);
        Ok(())
    }

    /// Waits until somebody else works on these primaries; returns who does.
    pub(super) async fn joined(&self) -> anyhow::Error {
        loop {
            sleep(AGAIN).await;
            let places = self.known.lock().places.clone();
            if let Err(who) = self.look(&places).await {
                return who;
            }
        }
    }

    async fn look(&self, places: &BTreeSet<Place>) -> anyhow::Result<()> {
        let unseen = match deployed::find(&self.client, places).await {
            Ok(found) if found.is_empty() => None,
            Ok(found) => anyhow::bail!(
                "{}, and would write what this one writes: scale it to 0, or take some of its primaries by --takeover KEY=VALUE",
                found.join("; ")
            ),
            Err(error) => Some(format!(
                "whether a daemon for the same primaries is deployed there can't be found out: {}",
                told(&error)
            )),
        };
        let before = std::mem::replace(&mut self.known.lock().unseen, unseen.clone());
        if let Some(unseen) = unseen.filter(|unseen| before.as_ref() != Some(unseen)) {
            self.log.say(&unseen);
        }
        Ok(())
    }
}
