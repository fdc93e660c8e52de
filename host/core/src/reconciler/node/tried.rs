//! Finds out what a write would lead to before it is sent: whether an object is as desired, and whether it has to be made anew (TR rules).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::visitor::{Basis, Stopped, Visitor};
use crate::cluster;
use crate::dependent::{self, Desired};
use crate::guest::{MatchResult, Operation};
use crate::manifest::{Dependent, Matching, OnImmutable};
use crate::object::Object;
use crate::source::Source;

/// An object that is going is looked at again after so long, unless its end is seen before.
const GOING: Duration = Duration::from_secs(10);

/// Returns a refusal with what would help, if it says of fields that they can't be changed.
fn hinted(refusal: cluster::Error) -> cluster::Error {
    if !refusal.message.contains("immutable") {
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
        let write = write.map_err(|e| e.to_string())?;
        let outcome = self.run.asked(self.run.controller.cluster.dry_run(write)).await.map_err(Stopped::from);
        let outcome = outcome.map_err(|stopped| if self.shows_secret(spec) { stopped.hushed() } else { stopped })?;
        let outcome = outcome.ok_or_else(|| format!("{}: a dry run answered no object", desired.key()))?;
        let compared = dependent::compare_outcome(actual, &outcome, &mut self.run.budget.lock());
        compared.map_err(|e| e.to_string().into())
    }

    /// Deletes an object that can't be updated to what is desired, and makes it anew, if the manifest wants that and it could be made so
    /// (`TR-2`). Until it is gone, the dependent is not ready.
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
        let cluster = &self.run.controller.cluster;
        if !found.header().deleting {
            let beside = dependent::create_beside(desired, spec, &self.run.controller.spec.field_manager);
            match self.run.asked(cluster.dry_run(beside)).await {
                Ok(_) => {}
                Err(error) if error.is_conflict() => {}
                Err(_) => return Err(refusal.into()),
            }
            tracing::info!(dependent = %name, object = %desired.key(), why = %refusal, "made anew, because it can't be updated");
            match self.run.asked(cluster.write(dependent::delete(spec.gvk.clone(), found))).await? {
                Some(left) if left.header().deleting => source.put(left),
                Some(_) | None => return self.write_upon(name, spec, (desired, hash), &Basis::Absent).await,
            }
        }
        self.run.hold(name, Instant::now() + GOING);
        Ok((Operation::Deleted, None))
    }
}
