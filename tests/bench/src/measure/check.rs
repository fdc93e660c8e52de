//! Measures how long `capstan check` takes, and how large the release is.

use anyhow::Result;

use super::{Measure, Round};
use crate::stage::Stage;
use crate::subject::Subject;

/// The median of so many runs counts.
const RUNS: usize = 5;

/// Takes the measure.
pub(super) fn measure(round: &mut Round<'_>, stage: &Stage) -> Result<()> {
    if !round.wants(&[Measure::Check]) {
        return Ok(());
    }
    (round.tell)("capstan check");
    let manifest = stage.manifest("check", &Subject::manifest()?)?;
    let runs = [(); RUNS].map(|()| stage.check(&manifest));
    let mut times = runs.into_iter().collect::<Result<Vec<_>>>()?;
    times.sort();
    if let Some(median) = times.get(RUNS / 2) {
        round.note(Measure::Check, "wall time, median of 5", "s", median.as_secs_f64());
    }
    if let Some(size) = round.subject.release_size() {
        round.note(Measure::Check, "size of the release", "MiB", size);
    }
    Ok(())
}
