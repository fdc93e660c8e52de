//! Finds out, before a dependent's object counts as absent or is made under another name, if a creation whose answer
//! was lost has made one.

use std::sync::Arc;

use super::visitor::{Stopped, Visitor};
use crate::cluster::{self, Write};
use crate::manifest::Dependent;
use crate::object::{Object, ObjectRef};
use crate::source::Source;

impl Visitor<'_> {
    /// Writes an object that the caches don't have. It is remembered for as long as its answer is missing: the
    /// primary may be deleted before a watch shows the object, and it would be left behind.
    pub(super) async fn make(
        &self,
        (name, spec, source): (&Arc<str>, &Dependent, &Source),
        key: &ObjectRef,
        write: Write,
    ) -> Result<Option<Object>, Stopped> {
        let verdicts = &self.run.controller.verdicts;
        let primary = &self.run.primary;
        let before = verdicts.unanswered(primary, name);
        if before.as_ref().is_some_and(|before| before != key) {
            self.look_for_unanswered(name, spec).await?;
        }
        verdicts.keep_unanswered(primary, name, Some(key.clone()));
        let answer = self.write(source, key, write).await;
        // A refusal says nothing about a creation before.
        let refused = |error: &cluster::Error| before.as_ref() != Some(key) && !error.may_be_done();
        if answer.as_ref().map_or_else(refused, |_| true) {
            verdicts.keep_unanswered(primary, name, None);
        }
        Ok(answer?)
    }

    /// Reads the object of a creation without an answer, if there was one, and lets the source know of it.
    pub(super) async fn look_for_unanswered(&self, name: &Arc<str>, spec: &Dependent) -> Result<(), Stopped> {
        let controller = &self.run.controller;
        let Some(key) = controller.verdicts.unanswered(&self.run.primary, name) else {
            return Ok(());
        };
        let live = self.run.asked(controller.cluster.look(&spec.gvk, &key)).await?;
        if let Some(made) = live.filter(|live| self.belongs(name, spec, live)) {
            self.source(name).await?.put(made);
        }
        controller.verdicts.keep_unanswered(&self.run.primary, name, None);
        Ok(())
    }
}
