//! Finds out what a write would lead to before it is sent: whether an object is as desired, and whether it has to be made anew (TR rules).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::visitor::{Basis, Stopped, Visitor};
use crate::cluster::{self, Propagation, Write};
use crate::dependent::{self, Desired};
use crate::guest::{MatchResult, Operation};
use crate::manifest::{Dependent, Matching, OnImmutable};
use crate::object::Object;
use crate::source::Source;

/// An object that is going is looked at again after so long, unless its end is seen before.
const GOING: Duration = Duration::from_secs(10);

/// Returns a refusal with what would help, if it says of fields that they can't be changed.
fn hinted(refusal: cluster::Error) -> cluster::Error {
    if !refusal.says.immutable {
        return refusal;
    }
    let message = format!("{}; `onImmutable: recreate` has the object deleted and made anew", refusal.message);
    cluster::Error { message, ..refusal }
}

impl Visitor<'_> {
    /// Returns whether an object is as desired, compared as the manifest says.
    pub(super) async fn compare(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        actual: &Object,
        desired: &Desired,
    ) -> Result<MatchResult, Stopped> {
        match self.compare_contents(name, spec, actual, desired).await? {
            // Whatever else counts: it was not garbage collected before, or somebody has taken its owner away.
            MatchResult::Matches if dependent::lacks_owner(actual, desired) => {
                Ok(MatchResult::Differs("/metadata/ownerReferences: the primary is missing".to_owned()))
            }
            compared @ (MatchResult::Matches | MatchResult::Differs(_)) => Ok(compared),
        }
    }

    async fn compare_contents(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        actual: &Object,
        desired: &Desired,
    ) -> Result<MatchResult, Stopped> {
        if let Matching::Export(export) = &spec.matching {
            let (wanted, primary) = (desired.json(), self.run.primary.json());
            let asked = self.session.matches(export, actual.json(), &wanted, primary).await;
            return asked.map_err(|failure| Stopped::Asked(format!("match {export} of {name}: {failure}")));
        }
        let manager = &self.run.controller.spec.field_manager;
        let compared = dependent::compare(actual, desired, spec, manager, &mut self.run.budget.lock());
        match (compared.map_err(|e| e.to_string())?, &spec.matching) {
            (MatchResult::Differs(_), Matching::DryRun) => self.compare_outcome(spec, actual, desired).await,
            (compared, _) => Ok(compared),
        }
    }

    /// Returns whether the write that would bring an object to what is desired changes nothing (`TR-1`).
    async fn compare_outcome(
        &self,
        spec: &Dependent,
        actual: &Object,
        desired: &Desired,
    ) -> Result<MatchResult, Stopped> {
        let manager = &self.run.controller.spec.field_manager;
        let write = dependent::update(actual, desired, spec, manager, &mut self.run.budget.lock());
        let write = Write { shows_secret: spec.shows_secret, ..write.map_err(|e| e.to_string())? };
        let outcome = self.run.asked(self.run.controller.cluster.dry_run(write)).await.map_err(Stopped::from);
        let outcome = outcome.map_err(|stopped| stopped.told_of(spec))?;
        let outcome = outcome.ok_or_else(|| format!("{}: a dry run answered no object", desired.key()))?;
        let compared = dependent::compare_outcome(actual, &outcome, &mut self.run.budget.lock());
        compared.map_err(|e| e.to_string().into())
    }

    /// Deletes an object that can't be updated to what is desired, with all that it owns, and makes it anew, if the manifest wants that and it
    /// could be made so (`TR-2`). Until it is gone, the dependent is not ready. `found` is what the API server has of it now.
    pub(super) async fn replace(
        &self,
        (name, spec, source): (&Arc<str>, &Dependent, &Source),
        (desired, hash): (&Desired, u64),
        found: &Object,
        refusal: cluster::Error,
    ) -> Result<(Operation, Option<Object>), Stopped> {
        if spec.on_immutable != OnImmutable::Recreate {
            return Err(hinted(refusal).into());
        }
        if !found.header().deleting {
            if !self.helps((name, spec), (desired, hash), found, &refusal).await {
                return Err(refusal.into());
            }
            let why = Stopped::from(refusal).told_of(spec);
            tracing::info!(dependent = %name, object = %desired.key(), %why, "made anew, because it can't be updated");
            let deletion = dependent::delete_as_seen(spec.gvk.clone(), found, Propagation::Foreground);
            let deletion = Write { shows_secret: spec.shows_secret, ..deletion };
            let deleted = self.run.asked(self.run.controller.cluster.write(deletion)).await;
            self.forget_contest(name, found.key());
            match deleted.map_err(|error| Stopped::from(error).told_of(spec))? {
                Some(left) if left.header().deleting => source.put(left),
                Some(_) | None => return self.write_upon(name, spec, (desired, hash), &Basis::Absent).await,
            }
        }
        self.run.hold(name, Instant::now() + GOING);
        Ok((Operation::Deleted, None))
    }

    /// Returns true if an object that can't be updated would be as desired if it were made anew: it is ours, nothing but what it is by now
    /// speaks against the update, and it was not made from the same answer before.
    async fn helps(
        &self,
        (name, spec): (&Arc<str>, &Dependent),
        (desired, hash): (&Desired, u64),
        found: &Object,
        refusal: &cluster::Error,
    ) -> bool {
        let controller = &self.run.controller;
        let made_so = self.has_matched((name, spec), desired.key(), hash);
        // Admission forbids changes, and may permit the same as something new.
        if made_so || refusal.says.denied || !self.belongs(name, spec, found) {
            return false;
        }
        let beside = dependent::create_beside(desired, spec, &controller.spec.field_manager);
        let beside = Write { shows_secret: spec.shows_secret, ..beside };
        let tried = self.run.asked(controller.cluster.dry_run(beside)).await;
        // It exists, and nothing else is wrong with it.
        tried.map_or_else(|error| error.is_conflict(), |_| true)
    }
}
