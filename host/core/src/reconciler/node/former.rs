//! Decides what happens to the objects that a dependent made under other names than its present one.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::visitor::{Stopped, Visitor};
use super::{SOME, is_watched};
use crate::cluster::{Propagation, Write};
use crate::cpu;
use crate::dependent::{self, ownership};
use crate::guest::{Operation, WorkflowResult};
use crate::manifest::{Dependent, OnRename};
use crate::object::{Object, ObjectRef};
use crate::source::Source;
use crate::workflow::Mode;

impl Visitor<'_> {
    /// Returns true if former objects are deleted together with the dependent's own. In a cleanup this is so for
    /// every dependent that the daemon deletes.
    pub(super) fn lets_formers_go(&self, spec: &Dependent) -> bool {
        match self.mode {
            Mode::Reconcile => spec.on_rename == OnRename::Delete,
            Mode::Cleanup => spec.deletable(),
        }
    }

    /// Deletes the former objects of the nodes that are settled, and adds the deletions and failures to the result.
    pub(super) async fn settle_names(&self, settled: &[Arc<str>], result: &mut WorkflowResult) {
        for name in settled {
            let Some(spec) = self.workflow.dependents.get(name) else {
                continue;
            };
            let shown = result.nodes.iter_mut().find(|shown| shown.name == **name);
            let Some(shown) = shown.filter(|_| spec.on_rename == OnRename::Delete) else {
                continue;
            };
            if let Err(stopped) = self.let_formers_go(name, spec, &mut shown.done).await {
                shown.failed = Some(stopped.into());
                result.complete = false;
            }
        }
    }

    /// Deletes the former objects of a node that are not already being deleted, in the version that was looked at: if
    /// a mark has just been removed, that is a conflict. Adds each to what was `done`.
    pub(super) async fn let_formers_go(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        let source = self.source(name).await?;
        for former in self.formers(name, spec).await? {
            let object = former.key();
            if done.iter().any(|(known, _)| *known == object.to_string()) {
                continue;
            }
            if !former.header().deleting {
                let write = dependent::delete_as_seen(spec.gvk.clone(), &former, Propagation::Background);
                let write = Write { shows_secret: spec.shows_secret, ..write };
                self.forget_contest(name, object);
                let deleting = self.run.asked(self.run.controller.cluster.write(write)).await;
                if let Some(left) = deleting.map_err(|error| Stopped::from(error).told_of(spec))? {
                    source.put(left);
                }
                let now = self.run.known_key(name).map(|key| key.to_string());
                tracing::info!(dependent = %name, %object, now, "the former object is deleted: the dependent has another name");
            }
            done.push((object.to_string(), Operation::Deleted));
        }
        Ok(())
    }

    /// Returns the objects that a node made under names that neither it nor another dependent has now.
    pub(super) async fn formers(&self, name: &Arc<str>, spec: &Dependent) -> Result<Vec<Object>, Stopped> {
        let source = self.source(name).await?;
        let related = source.related(self.run.primary.key());
        let own = match &spec.called {
            Some(called) => Some(self.named(called, spec)?),
            None => self.run.known_key(name),
        };
        // What is not watched any more shows nothing: what was there is not gone.
        source.watched()?;
        own.iter().try_for_each(|key| is_watched(source, key))?;
        let mut meant: BTreeSet<ObjectRef> = own.into_iter().collect();
        let mut unknown = Vec::new();
        for (other, spec) in self.others(name, spec) {
            // What a bulk has bears its own mark.
            if spec.bulk {
                continue;
            }
            match self.run.known_key(other) {
                Some(key) => {
                    meant.insert(key);
                }
                None => unknown.push((other, spec)),
            }
        }
        let mut formers = self.made_by(name, related, &meant).await?;
        // An object with an owner reference may be any dependent's, which may have left the mark as it was: so the
        // names of their objects have to be known.
        let uid = &self.run.primary.header().uid;
        let owned = |object: &Object| {
            let mut owners = object.header().owners.iter();
            owners.any(|owner| owner.uid == *uid)
        };
        if formers.iter().any(owned) {
            for (other, spec) in unknown {
                match self.meant(other, spec).await {
                    Ok(key) => formers.retain(|object| Some(object.key()) != key.as_ref()),
                    Err(problem) => {
                        tracing::debug!(dependent = %name, %other, %problem, "what another dependent means is not known: former objects stay");
                        formers.retain(|object| !owned(object));
                    }
                }
            }
        }
        Ok(formers)
    }

    /// Returns those of the primary's objects that bear a node's mark, without those that are `meant`.
    pub(super) async fn made_by(
        &self,
        name: &str,
        mut related: Vec<Object>,
        meant: &BTreeSet<ObjectRef>,
    ) -> Result<Vec<Object>, Stopped> {
        // Objects without a mark cost nothing, so that nobody else's can use up what a run may spend.
        related.retain(|object| object.header().marked && !meant.contains(object.key()));
        let bytes = related.iter().map(Object::size).sum();
        let paid = self.run.budget.lock().text(bytes);
        paid.map_err(|error| error.to_string())?;
        let own = self.run.mark(name);
        let mut made = Vec::new();
        for (number, object) in related.into_iter().enumerate() {
            if number % SOME == 0 {
                cpu::rest().await;
            }
            if ownership::is_made_by(&object, &own) {
                made.push(object);
            }
        }
        Ok(made)
    }

    /// Logs that a former object stays, if there is one.
    pub(super) fn tell_of_former(&self, name: &Arc<str>, spec: &Dependent, source: &Source, now: &ObjectRef) {
        let known = self.run.controller.verdicts.verdict(&self.run.primary, name);
        let former = known.map(|verdict| verdict.key).filter(|key| key != now);
        let Some(former) = former.and_then(|key| source.get(&key)) else {
            return;
        };
        let object = former.key();
        let taken = |(other, _): (&Arc<str>, _)| self.run.known_key(other).as_ref() == Some(object);
        let stays = spec.on_rename == OnRename::Keep
            && !former.header().deleting
            && self.belongs(name, spec, &former)
            && !self.others(name, spec).any(taken);
        if stays {
            tracing::info!(dependent = %name, %object, %now, "the dependent has another name; its former object stays (`onRename: keep`)");
        }
    }

    /// Returns the other dependents of the controller whose objects are of the same kind.
    pub(super) fn others(&self, name: &str, spec: &Dependent) -> impl Iterator<Item = (&Arc<str>, &Dependent)> {
        let (name, own) = (name.to_owned(), spec.gvk.clone());
        let all = self.run.controller.spec.dependents();
        all.filter(move |(other, spec)| ***other != *name && spec.gvk.is_kind_of(&own))
    }

    /// Returns the key of a dependent's object, and asks for its desired state if necessary; `None` if the dependent
    /// never writes an object.
    pub(super) async fn meant(&self, name: &Arc<str>, spec: &Dependent) -> Result<Option<ObjectRef>, Stopped> {
        let manage = spec.manage;
        if spec.called.is_none() && !manage.create && !manage.update {
            return Ok(None);
        }
        self.key(name, spec).await.map(Some)
    }
}
