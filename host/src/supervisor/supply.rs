//! Where manifests and components come from, as the supervisor asks for them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use capstan_core::guest::Guest;
use capstan_core::manifest::{Operator, Permission};
use capstan_core::rollout::File;
use futures::future::BoxFuture;

use super::status::Refusal;
use crate::plugin::Usage;

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
