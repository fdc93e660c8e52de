//! Measures what it takes to keep many objects that the daemon does not own.

use std::time::Duration;

use anyhow::Result;

use super::{Measure, Round, Span, number};
use crate::clock::pass;
use crate::daemon::Daemon;
use crate::load;
use crate::objects::{FOREIGN, deployment, foreign_path};
use crate::stage::Stage;
use crate::subject::Subject;

/// How long the daemon is left alone before its memory is read.
const REST: Duration = Duration::from_secs(10);
const KIB_PER_MIB: f64 = 1024.0;

/// Takes the measure: a daemon without the objects, then the same with them.
pub(super) fn measure(round: &mut Round<'_>, stage: &Stage) -> Result<()> {
    let manifest = stage.manifest("cache", &Subject::manifest()?)?;
    (round.tell)("cache: idle for comparison");
    let mut daemon = Daemon::start(stage, &manifest)?;
    daemon.until_ready()?;
    pass(REST);
    let idle = daemon.pss()?;
    daemon.stop()?;

    let count = round.sizes.deployments;
    (round.tell)("cache: creating Deployments");
    stage.namespace(FOREIGN)?;
    load::spread(stage, count, |api, number| {
        api.create(&foreign_path(), &deployment(number))?;
        Ok(())
    })?;
    let sample = stage.list(&format!("{}?limit=1", foreign_path()))?;
    let size = sample.first().map_or(0, |object| object.to_string().len());
    round.note(Measure::Cache, "one as JSON", "KiB", number(size) / KIB_PER_MIB);

    (round.tell)("cache: start");
    let span = Span::begin(stage, None)?;
    let mut daemon = Daemon::start(stage, &manifest)?;
    let ready = daemon.until_ready()?;
    pass(REST);
    let (pss, peak) = (daemon.pss()?, daemon.peak()?);
    let added = pss - idle;
    round.note(Measure::Cache, "start to synced", "s", ready.as_secs_f64());
    span.used(round, Measure::Cache, &daemon)?;
    let mut note = |name: &str, unit, value| round.note(Measure::Cache, name, unit, value);
    note("Pss", "MiB", pss);
    note("Pss above idle", "MiB", added);
    note("one in memory", "KiB", added * KIB_PER_MIB / number(count));
    note("peak RSS", "MiB", peak);
    note("peak RSS / Pss", "", peak / pss);
    span.requests(round, Measure::Cache)?;
    daemon.stop()
}
