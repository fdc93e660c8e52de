//! Which conditions the daemon keeps in the status of primaries, and under which name it writes them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Controller;

/// What the field manager of conditions has behind that of its controller: what components apply to the status owns none of them.
const BEHIND: &str = "/conditions";

/// The longest field manager of a controller that has conditions, in bytes: the API server takes 128.
pub(crate) const LONGEST_MANAGER: usize = 128 - BEHIND.len();

/// Which conditions the daemon keeps in the status of primaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StatusConditions {
    /// None.
    #[default]
    None,
    /// `Ready`, `Progressing` and `Degraded`.
    Standard,
}

impl Controller {
    /// Whether the daemon keeps standard conditions in the status of primaries.
    pub fn keeps_conditions(&self) -> bool {
        self.status_conditions == StatusConditions::Standard
    }

    /// Returns the field manager of these conditions.
    pub fn conditions_manager(&self) -> Arc<str> {
        format!("{}{BEHIND}", self.field_manager).into()
    }

    /// Returns the field managers under which it writes.
    pub fn managers(&self) -> impl Iterator<Item = Arc<str>> {
        let conditions = self.keeps_conditions().then(|| self.conditions_manager());
        [Arc::clone(&self.field_manager)].into_iter().chain(conditions)
    }
}
