//! Which dependents may be applied once more for the version of their kind.

use super::super::{Matching, raw};
use super::Check;
use super::fields::{flag, located};

impl Check<'_> {
    // KD-12
    pub(super) fn detects_versions(&mut self, raw: &raw::Dependent, applied: bool, matching: &Matching) -> bool {
        let wanted = flag(&raw.detect_api_version_change, false);
        let can = applied && matches!(matching, Matching::Usual | Matching::Export(_));
        if let Some(detect) = located(&raw.detect_api_version_change).filter(|_| wanted && !can) {
            self.fault(
                detect.place,
                "found `detectApiVersionChange` where fields are not compared as they were applied; expected `serverSideApply: true`, and no `match: generic` or `dryRun`, beside it",
            );
        }
        wanted
    }
}
