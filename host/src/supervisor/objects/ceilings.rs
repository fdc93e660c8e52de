//! Follows the file of ceilings: what it says holds at once; where it is broken, what it said last (CE-7).

use std::path::PathBuf;
use std::sync::Arc;

use capstan_core::rollout::File;

use crate::client::InForce;
use crate::files::{Files, Watchlist};
use crate::operators;

/// The file of ceilings, which hold already.
pub struct Followed {
    path: PathBuf,
    /// The daemon's own namespace, whose operators have none.
    own: Arc<str>,
    files: Files,
    in_force: Arc<InForce>,
    /// What is wrong with it now.
    problem: Option<String>,
}

impl Followed {
    /// Follows a file that these ceilings were read of.
    pub fn new(path: PathBuf, own: &Arc<str>, in_force: Arc<InForce>) -> Self {
        let mut followed = Self { path, own: Arc::clone(own), files: Files::new(), in_force, problem: None };
        followed.watch();
        followed
    }

    /// Reads it, and lets it hold if it is good.
    pub(super) fn look(&mut self) {
        // Links may lead elsewhere by now.
        self.watch();
        if self.path.canonicalize().is_ok_and(|path| self.files.writing().contains(&path)) {
            return;
        }
        match operators::ceilings_of_others(&self.path, &self.own) {
            Ok(ceilings) => {
                self.problem = None;
                if self.in_force.set(ceilings) {
                    tracing::info!(file = %self.path.display(), "other ceilings hold");
                }
            }
            Err(error) => self.problem = Some(format!("{error:#}\nthe ceilings that it had last hold")),
        }
    }

    /// Returns it as a broken manifest, if it is broken.
    pub(super) fn broken(&self) -> Option<File> {
        let problem = self.problem.clone()?;
        Some(File { path: self.path.clone(), content: Err(problem) })
    }

    /// Waits until it may have changed. If the future is dropped, no change is lost.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.files.changed()
    }

    fn watch(&mut self) {
        let mut list = Watchlist::default();
        list.add_file(&self.path);
        self.files.watch(list);
    }
}
