//! Measures a daemon that has nothing to do.

use std::time::Duration;

use anyhow::Result;

use super::{Measure, Round, Span};
use crate::clock::pass;
use crate::daemon::Daemon;
use crate::stage::Stage;
use crate::subject::Subject;

/// How long it is left alone.
const REST: Duration = Duration::from_secs(10);

/// Takes the measure.
pub(super) fn measure(round: &mut Round<'_>, stage: &Stage) -> Result<()> {
    if !round.wants(&[Measure::Idle]) {
        return Ok(());
    }
    (round.tell)("idle");
    let manifest = stage.manifest("idle", &Subject::manifest()?)?;
    let span = Span::begin(stage, None)?;
    let mut daemon = Daemon::start(stage, &manifest)?;
    let ready = daemon.until_ready()?;
    pass(REST);
    round.note(Measure::Idle, "start to ready", "s", ready.as_secs_f64());
    span.used(round, Measure::Idle, &daemon)?;
    round.note(Measure::Idle, "Pss", "MiB", daemon.pss()?);
    round.note(Measure::Idle, "peak RSS", "MiB", daemon.peak()?);
    daemon.stop()
}
