//! The interface through which the supervisor gets manifests and components and waits for their changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::manifest::Operator;
use capstan_core::operator::ceiling::kinds::Told;
use capstan_core::rollout::File;
pub use capstan_core::rollout::plan::{Content, Unit};
pub use capstan_core::rollout::values::Values;
use capstan_core::text;
use futures::future::BoxFuture;

pub use crate::plugin::{Component, Drain};

/// The time after which something is tried again that failed by the daemon's own fault, such as lack of memory.
const AGAIN: Duration = Duration::from_secs(30);

/// The operators that are above their ceilings, each with the reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Above {
    /// Those that have what it does not permit.
    pub beyond: BTreeMap<Arc<str>, String>,
    /// Those for which others, that were applied before, leave no room.
    pub without_room: BTreeMap<Arc<str>, String>,
}

/// Supplies manifests and components, as they are now. Only waiting for a change and loading take time.
pub trait Supply: Send {
    /// Reads all manifests, where `before` is what they said last. A change during the reading is reported by
    /// [`Supply::changed`] afterwards.
    fn manifests(&mut self, before: &[Operator]) -> Vec<File>;

    /// Returns which of these operators may not be any more, though they were until now, each with the reason (`CE-7`). `told` is what the API server calls
    /// their kinds.
    fn above(&mut self, _operators: &[Operator], _told: &Told) -> Above {
        // Whoever may change files may have all that the daemon has.
        Above::default()
    }

    /// Sets the wanted operators: from now on their components are watched, too, and there is room for their
    /// instances.
    fn want(&mut self, operators: &[Operator]);

    /// Returns the state of a component's file.
    fn content(&self, component: &Path) -> Content;

    /// Waits until something may have changed, and returns what is to be tried then. If the future is dropped, no
    /// change is lost.
    fn changed(&mut self) -> BoxFuture<'_, Again>;

    /// Returns the loader of one operator's plugins. As long as it exists, nothing is prepared that can wait.
    fn loader(&self, again: Again) -> Box<dyn Loader>;
}

/// Loads plugins.
pub trait Loader: Send + Sync {
    /// Loads a plugin of an operator, whose component had this content, with these values in its `config`.
    ///
    /// # Errors
    /// [`Refusal`] if the component is missing, is not a component, or does not fit the manifest.
    fn load<'a>(
        &'a self,
        operator: &'a Operator,
        plugin: &'a str,
        content: (&'a Content, &'a Values),
    ) -> BoxFuture<'a, Result<Arc<dyn Component>, Refusal>>;
}

/// When a version that was refused before is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Once it has changed.
    OnceChanged,
    /// In any case, changed or not.
    InAnyCase,
}

/// A version that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(super) step: &'static str,
    pub(super) message: String,
    /// Where the manifest names the component.
    pub(super) at: Option<String>,
}

impl Refusal {
    /// Returns the refusal of a version, at a step.
    pub fn new(step: &'static str, message: &str) -> Self {
        let message = text::block(message);
        Self { step, message, at: None }
    }

    /// Returns the same of a component that the manifest names here.
    #[must_use]
    pub(super) fn named(self, at: String) -> Self {
        Self { at: Some(at), ..self }
    }

    /// Returns the time after which the same version is tried again although nothing has changed; `None` if it would
    /// end in the same way.
    pub(super) fn again_in(&self) -> Option<Duration> {
        is_tried_again(self.step).then_some(AGAIN)
    }
}

/// Whether what was refused at this step is tried again although nothing has changed.
pub fn is_tried_again(step: &str) -> bool {
    matches!(step, "prepare" | "finalizers" | "ceiling")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_its_own_fault_is_tried_again_as_it_is() {
        for (step, again) in [
            ("read", None),
            ("pull", None),
            ("compile", None),
            ("check", None),
            ("start", None),
            ("together", None),
            ("prepare", Some(AGAIN)),
            ("finalizers", Some(AGAIN)),
            ("ceiling", Some(AGAIN)),
        ] {
            assert_eq!(Refusal::new(step, "").again_in(), again, "{step}");
        }
    }
}
