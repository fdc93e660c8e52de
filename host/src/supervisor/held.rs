//! Holds changes of files back until somebody says that they are to be taken.

use std::path::Path;
use std::sync::Arc;

use capstan_core::manifest::Operator;
use capstan_core::operator::ceiling::kinds::Told;
use capstan_core::rollout::File;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::supply::{Above, Again, Content, Loader, Supply};

/// Manifests and components whose changes are taken when they are released.
pub struct Held<S> {
    supply: S,
    released: Arc<Notify>,
}

impl<S: Supply> Held<S> {
    /// Returns a supply whose changes are taken whenever `released` is notified.
    pub fn new(supply: S, released: Arc<Notify>) -> Self {
        Self { supply, released }
    }
}

impl<S: Supply> Supply for Held<S> {
    fn manifests(&mut self, before: &[Operator]) -> Vec<File> {
        self.supply.manifests(before)
    }

    fn above(&mut self, operators: &[Operator], told: &Told) -> Above {
        self.supply.above(operators, told)
    }

    fn want(&mut self, operators: &[Operator]) {
        self.supply.want(operators);
    }

    fn content(&self, component: &Path) -> Content {
        self.supply.content(component)
    }

    fn changed(&mut self) -> BoxFuture<'_, Again> {
        self.released.notified().map(|()| Again::OnceChanged).boxed()
    }

    fn loader(&self, again: Again) -> Box<dyn Loader> {
        self.supply.loader(again)
    }
}
