//! Writes to a primary: the updates of a run, and finalizers, which are tried again after a conflict (FI rules).

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use super::controller::Controller;
use super::verdicts::Verdict;
use super::{finalizer, outcome};
use crate::budget::Budget;
use crate::cluster::{self, Reason, Verb, Write};
use crate::object::{Object, Version};
use crate::writes;

/// The result of a write that is tried until there is no conflict.
enum Settled {
    /// There was nothing to write; the object as it was read.
    Read(Object),
    /// The object as it was written.
    Wrote(Object),
    /// The object is gone.
    Gone,
}

impl Controller {
    /// Returns a primary with all that is kept of it: from the API server, if its source has forgotten it (`BC-1`). `None` if it is gone, or has been
    /// made again, which its watch will tell.
    pub(super) async fn whole(&self, primary: Object) -> Result<Option<Object>, cluster::Error> {
        if !self.primaries.has_forgotten(&primary) {
            return Ok(Some(primary));
        }
        let found = self.cluster.get(&self.spec.primary, primary.key()).await?;
        let same = found.filter(|found| found.header().uid == primary.header().uid);
        Ok(same.map(|found| self.primaries.recall(found)))
    }

    /// Writes to a primary unless the write would change nothing; the answer is visible to the next reader at once
    /// (`UC-5`). Returns the version of the answer; `None` if nothing was written, or the object is gone or has been made again.
    pub(super) async fn write_primary(
        &self,
        primary: &Object,
        planned: outcome::Planned,
        budget: &Mutex<Budget>,
    ) -> Result<Option<Version>, cluster::Error> {
        let outcome::Planned { write, applied } = planned;
        let now = self.primaries.get(primary.key());
        // ID-1: an apply of a status can't say which object it means.
        if now.as_ref().is_some_and(|now| now.header().uid != primary.header().uid) {
            tracing::debug!("the primary has been made again meanwhile: what was to be written was for the former one");
            return Ok(None);
        }
        let upon = now.as_ref().map_or_else(|| primary.version(), Object::version);
        let slot: Arc<str> = if write.target.subresource.is_some() { "(status)" } else { "(object)" }.into();
        let document = self.hash(&write.verb.body());
        if let (Some(applied), Some(now)) = (&applied, now) {
            let known = Verdict::of(document, &now);
            if self.verdicts.verdict(&now, &slot).as_ref() == Some(&known) {
                return Ok(None);
            }
            if writes::is_applied(
                &now,
                applied,
                &self.spec.field_manager,
                write.target.subresource.as_deref(),
                &mut budget.lock(),
            ) {
                self.verdicts.keep_verdict(&now, &slot, known);
                return Ok(None);
            }
        }
        // DT-4
        let shows_secret = self.spec.status_shows_secret();
        let write = Write { shows_secret, ..write };
        let written = match self.cluster.write(write.clone()).await {
            // What its kind does not have would be dropped (FV-1).
            Err(error) if error.is_misfit() && error.fields.is_empty() => match merged(write, upon, budget) {
                Some(merged) => self
                    .cluster
                    .write(merged)
                    .await
                    .map_err(|other| if other.is_conflict() || other.is_outage() { other } else { error }),
                None => Err(error),
            },
            written => written,
        };
        let written = written.map_err(|error| if shows_secret { error.hushed() } else { error });
        let Some(object) = written? else {
            return Ok(None);
        };
        let version = object.version();
        let verdict = Verdict::of(document, &object);
        self.verdicts.keep_verdict(&object, &slot, verdict);
        self.primaries.put(object);
        Ok(Some(version))
    }

    /// Adds a finalizer to a primary and returns the newest version of it (`FI-1`, `FI-2`). If the primary is gone,
    /// returns it as it was.
    pub(crate) async fn add_finalizer(&self, primary: &Object, finalizer: &str) -> Result<Object, cluster::Error> {
        let Self { spec, .. } = self;
        // An apply of another one would drop what this manager has applied, its own finalizer first.
        let own = spec.server_side_apply && self.own_finalizer() == Some(finalizer);
        let apply = if own { finalizer::Apply::Yes } else { finalizer::Apply::No };
        let plan = |now: &Object| finalizer::add(now, &spec.primary, finalizer, &spec.field_manager, apply);
        // The run may have removed it itself.
        Ok(match self.until_no_conflict(&self.newest(primary), plan).await? {
            // Its source keeps a part of it, which is enough to see the finalizer.
            Settled::Read(now) if self.primaries.has_forgotten(&now) => {
                self.whole(now).await?.unwrap_or_else(|| primary.clone())
            }
            Settled::Read(now) | Settled::Wrote(now) => {
                self.primaries.put(now.clone());
                self.primaries.cut(now)
            }
            Settled::Gone => primary.clone(),
        })
    }

    /// Removes finalizers, all in one write, whose event causes no run (`FI-3`). Returns the newest version of the
    /// primary; `None` if it is gone.
    pub(crate) async fn remove_finalizers(
        &self,
        primary: &Object,
        finalizers: &[&str],
    ) -> Result<Option<Object>, cluster::Error> {
        let window = self.primaries.begin(primary.key().clone(), |triggers| (self.tell)(triggers));
        let plan = |now: &Object| finalizer::remove(now, &self.spec.primary, finalizers, &self.spec.field_manager);
        let Some(now) = self.newest_with(primary, finalizers).await? else {
            return Ok(None);
        };
        Ok(match self.until_no_conflict(&now, plan).await? {
            Settled::Wrote(left) => {
                let seen = self.primaries.cut(left.clone());
                window.wrote(left);
                Some(seen)
            }
            // The event of this version is that of another client's write, and counts.
            Settled::Read(now) => {
                self.primaries.put(now.clone());
                Some(self.primaries.cut(now))
            }
            Settled::Gone => None,
        })
    }

    /// Returns the newest version of a primary; from the API server, if the caches show none of the finalizers
    /// (`FI-3`). `None` if it is gone.
    async fn newest_with(&self, primary: &Object, finalizers: &[&str]) -> Result<Option<Object>, cluster::Error> {
        let cached = self.newest(primary);
        if finalizers.iter().any(|name| cached.header().has_finalizer(name)) {
            return Ok(Some(cached));
        }
        let live = self.cluster.get(&self.spec.primary, primary.key()).await?;
        Ok(live.filter(|live| live.header().uid == primary.header().uid))
    }

    /// Returns the newest version of a primary that the caches have; as it is given, if they have none.
    fn newest(&self, primary: &Object) -> Object {
        let cached = self.primaries.get(primary.key()).filter(|now| now.header().uid == primary.header().uid);
        cached.unwrap_or_else(|| primary.clone())
    }

    /// Sends the write that `plan` returns for the newest version, in up to ten tries (`FI-4`).
    async fn until_no_conflict(
        &self,
        primary: &Object,
        plan: impl Fn(&Object) -> Option<Write>,
    ) -> Result<Settled, cluster::Error> {
        let mut now = primary.clone();
        let mut tries = 0;
        loop {
            let Some(write) = plan(&now) else {
                return Ok(Settled::Read(now));
            };
            tries += 1;
            let write = Write { shows_secret: self.spec.status_shows_secret(), ..write };
            match self.cluster.write(write).await {
                Ok(object) => return Ok(object.map_or(Settled::Gone, Settled::Wrote)),
                Err(error) if error.reason == Reason::Missing => return Ok(Settled::Gone),
                Err(error) if !error.is_conflict() || tries == finalizer::TRIES => {
                    return Err(error);
                }
                Err(_) => match self.cluster.get(&self.spec.primary, primary.key()).await? {
                    Some(object) if object.header().uid == primary.header().uid => now = object,
                    _ => return Ok(Settled::Gone),
                },
            }
        }
    }
}

/// Returns a merge patch for an apply of a status, by which one that does not fit its schema any more is put right (`UC-2`). `None` for what
/// is none; nor would a list of conditions be merged.
fn merged(write: Write, upon: Version, budget: &Mutex<Budget>) -> Option<Write> {
    let Verb::Apply { body, manager, .. } = write.verb else {
        return None;
    };
    let is_status = write.target.subresource.as_deref() == Some("status");
    let read = budget.lock().read(&body).ok().filter(|_| is_status)?;
    let status = read.get("status").filter(|status| status.get("conditions").is_none())?;
    // That of the answer, if it has one.
    let version = read.pointer("/metadata/resourceVersion").cloned().unwrap_or_else(|| upon.to_string().into());
    let body = json!({ "metadata": { "resourceVersion": version }, "status": status }).to_string();
    Some(Write { verb: Verb::MergePatch { body, manager }, ..write })
}
