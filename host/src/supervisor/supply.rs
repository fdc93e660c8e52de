//! Where manifests and components come from, as the supervisor asks for them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::Guest;
use capstan_core::manifest::{Operator, Permission};
use capstan_core::rollout::File;
use capstan_core::text;
use futures::future::BoxFuture;

use crate::plugin::Usage;

/// After which time something is tried again that failed by the daemon's own fault, such as want of memory.
const AGAIN: Duration = Duration::from_secs(30);

/// Manifests and components, as they are now. Nothing here waits but for a change, and for what is loaded.
pub trait Supply: Send {
    /// Reads all manifests, where `before` is what they said last. What changes while it reads is told of afterwards.
    fn manifests(&mut self, before: &[Operator]) -> Vec<File>;

    /// Says which operators are wanted: from now on their components are looked at, too, and there is room for their instances.
    fn want(&mut self, operators: &[Operator]);

    /// Returns what a component is.
    fn content(&self, component: &Path) -> Content;

    /// Returns once something may be another, and what is to be tried then. Dropped, it misses nothing.
    fn changed(&mut self) -> BoxFuture<'_, Again>;

    /// Returns what loads the plugins of one operator. As long as it is there nothing is made ready that can wait.
    fn loader(&self, again: Again) -> Box<dyn Loader>;
}

/// Loads plugins.
pub trait Loader: Send + Sync {
    /// Loads a plugin of an operator, whose component was like this.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such component, it is none, or does not fit the manifest.
    fn load<'a>(
        &'a self,
        operator: &'a Operator,
        plugin: &'a str,
        content: &'a Content,
    ) -> BoxFuture<'a, Result<Arc<dyn Component>, Refusal>>;
}

/// A loaded version of a component.
pub trait Component: Guest + fmt::Debug {
    /// Returns the SHA-256 of the component, in hexadecimal.
    fn digest(&self) -> &str;

    /// Returns the ways in which it can ask to write, as the manifest would permit it.
    fn writes(&self) -> &BTreeSet<Permission>;

    /// Returns what it has done since it was loaded.
    fn usage(&self) -> Usage;

    /// Returns the number of the process that its instances have for themselves; none if they have none.
    fn process_id(&self) -> Option<u32>;

    /// Says that another version is in force: nothing is kept for later.
    fn retire(&self);

    /// Returns how to wait until no run uses it.
    fn drain(&self) -> Drain;
}

/// Waits until no run uses a version. It keeps nothing of it.
pub type Drain = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What a component is, short of reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// It is not there.
    Missing,
    /// Somebody is writing it.
    Half,
    /// Whole: what tells it from others.
    Whole(Arc<str>),
}

/// Whether what was refused before is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Once it has changed.
    OnceChanged,
    /// In any case.
    InAnyCase,
}

/// A plugin of an operator: what is loaded and replaced as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// The operator.
    pub operator: Arc<str>,
    /// The plugin's name in its manifest.
    pub plugin: Arc<str>,
}

/// A version that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(super) step: &'static str,
    pub(super) message: String,
}

impl Refusal {
    /// Returns the refusal of a version, at a step.
    pub fn new(step: &'static str, message: &str) -> Self {
        let message = text::block(message);
        Self { step, message }
    }

    /// Returns after which time the same is tried once more although nothing has changed; none if it would end in the same way.
    pub(super) fn again_in(&self) -> Option<Duration> {
        (self.step == "prepare").then_some(AGAIN)
    }
}

impl fmt::Display for Unit {
    /// Writes `operator/plugin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.operator, self.plugin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_daemons_own_fault_is_tried_again_as_it_is() {
        for (step, again) in [
            ("read", None),
            ("compile", None),
            ("check", None),
            ("start", None),
            ("together", None),
            ("prepare", Some(AGAIN)),
        ] {
            assert_eq!(Refusal::new(step, "").again_in(), again, "{step}");
        }
    }
}
