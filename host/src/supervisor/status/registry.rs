//! Shows what registries say of components: what references named, when that was asked, and when it is asked again.

use capstan_core::manifest::Component as Source;
use capstan_core::registry::Kind;
use serde::{Deserialize, Serialize};

use super::{Entry, Row, State, Status, Unit, second};
use crate::registry::images::{Images, Seen};

/// What a registry says of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    /// The digest of what the reference named last; none if that is not known.
    pub digest: Option<String>,
    /// When it was asked last, in RFC 3339; none if that has not ended.
    pub checked: Option<String>,
    /// When it is asked again; none if it is never.
    pub next: Option<String>,
    /// Why what it named last goes on, or nothing does; none if the registry has answered well.
    pub problem: Option<String>,
}

impl Status {
    /// Returns the status with the components of registries.
    pub fn pulling(images: Images) -> Self {
        Self { images, ..Self::default() }
    }

    /// Returns what a registry says of a plugin's component; `None` if that is in no registry, or the manifest names another one by now.
    pub(super) fn seen(&self, unit: &Unit, entry: &Entry) -> Option<Seen> {
        match &entry.component {
            Some(Source::Registry(image)) => self.images.seen(&unit.operator, image),
            Some(Source::File(_)) | None => None,
        }
    }

    /// Adds what a registry says. One that says that the reference names what is no component any more has the last good one go on.
    pub(super) fn of_registry(&self, unit: &Unit, row: Row, entry: &Entry) -> Row {
        let Some(seen) = self.seen(unit, entry) else {
            return row;
        };
        let is_wrong = seen.problem.as_ref().is_some_and(|problem| problem.kind == Kind::Wrong);
        let state = if is_wrong && row.state == State::Active { State::Outdated } else { row.state };
        let registry = Registry {
            digest: seen.known.map(|known| known.digest.to_string()),
            checked: seen.checked.map(|time| second(time).to_string()),
            next: seen.next.map(|time| second(time).to_string()),
            problem: seen.problem.map(|problem| problem.message),
        };
        Row { state, registry: Some(registry), ..row }
    }
}
