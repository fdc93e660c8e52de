//! Visits the nodes of a workflow: asks desired states, compares, and writes what differs (DR, KD and WF rules).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::run::Run;
use super::verdicts;
use crate::budget::Budget;
use crate::cluster::{self, Write};
use crate::dependent::{self, Desired, Need, Origin};
use crate::guest::{ConditionRole, MatchResult, Operation, WorkflowResult};
use crate::manifest::{Dependent, Node, Permission};
use crate::object::{Object, ObjectRef, Scope};
use crate::source::{Source, Within};
use crate::workflow::graph::Graph;
use crate::workflow::walk::Walk;
use crate::workflow::{self, Activation, Mode, Outcome, Step, Task};

mod bulk;
mod called;
mod claim;
mod conditions;
mod contested;
mod former;
mod outside;
mod template;
mod tried;
mod unanswered;
mod visitor;
mod wanted;

use contested::{Drift, Of};
use template::Part;
pub(super) use visitor::Visitor;
use visitor::{Basis, Stopped, Told};

/// After so many objects others that wait for the processor have their turn.
const SOME: usize = 64;

impl Visitor<'_> {
    pub(super) async fn walk(&self, graph: &Graph) -> WorkflowResult {
        self.run.forget_found();
        let kind = |name: &str| Some(self.workflow.dependents.get(name)?.gvk.group_kind());
        let walk = Walk::new(graph, self.mode).of_kinds(kind);
        let visits = workflow::run(walk, |step| self.visit(step));
        let (mut result, settled) = visits.await;
        self.settle_names(&settled, &mut result).await;
        result
    }

    async fn visit(&self, step: Step) -> Outcome {
        let mut told = Told::default();
        let done = match self.workflow.node(&step.name) {
            Some(node) => self.carry_out(step.task, &step.name, node, &mut told).await,
            None => Err(format!("no dependent is called {:?}", step.name).into()),
        };
        let outcome = done.unwrap_or_else(|stopped| {
            if let Stopped::Unknown(doubt) = &stopped {
                self.run.doubts(doubt);
            }
            Outcome::Failed { failure: stopped.into(), done: told.done, conditions: told.conditions }
        });
        self.run.keep_visit(&step.name, &outcome);
        outcome
    }

    async fn carry_out(
        &self,
        task: Task,
        name: &Arc<str>,
        node: Node<'_>,
        told: &mut Told,
    ) -> Result<Outcome, Stopped> {
        if let Node::Object(spec) = node {
            self.run.begin_visit(&spec.gvk, name);
        }
        match task {
            Task::Reconcile => self.reconcile_node(name, node, told).await,
            Task::Delete(Activation::Met) => self.delete_node(name, node, node.manage().delete, told).await,
            Task::Delete(Activation::Unasked) | Task::Cleanup => {
                if !self.met(ConditionRole::Activation, name, node, told).await? {
                    let Told { done, conditions } = std::mem::take(told);
                    return Ok(Outcome::Deleted { done, conditions, gone: true });
                }
                let ours = if task == Task::Cleanup { node.deletable() } else { node.manage().delete };
                self.delete_node(name, node, ours, told).await
            }
        }
    }

    /// Visits a node to reconcile it (`WF-4`): activation, precondition, the object, readiness.
    async fn reconcile_node(&self, name: &Arc<str>, node: Node<'_>, told: &mut Told) -> Result<Outcome, Stopped> {
        if !self.met(ConditionRole::Activation, name, node, told).await? {
            return Ok(Outcome::Inactive { conditions: std::mem::take(told).conditions });
        }
        if !self.met(ConditionRole::ReconcilePrecondition, name, node, told).await? {
            return Ok(Outcome::Unwanted { conditions: std::mem::take(told).conditions });
        }
        match node {
            Node::Object(spec) => self.reconcile(name, spec, &mut told.done).await?,
            Node::Thing(spec) => self.reconcile_outside(name, spec, &mut told.done).await?,
        }
        // LG-1: what is not put right is not ready.
        let ready = !self.run.holds(name) && self.met(ConditionRole::ReadyPostcondition, name, node, told).await?;
        let Told { done, conditions } = std::mem::take(told);
        Ok(Outcome::Reconciled { done, conditions, ready })
    }

    /// Visits a node to delete it (`WF-5`, `WF-6`): deletes the object if `ours`, then asks if it is gone.
    async fn delete_node(
        &self,
        name: &Arc<str>,
        node: Node<'_>,
        ours: bool,
        told: &mut Told,
    ) -> Result<Outcome, Stopped> {
        match node {
            Node::Object(spec) if ours => self.delete_all_of(name, spec, &mut told.done).await?,
            Node::Thing(spec) if ours => self.remove_outside(name, spec, &mut told.done).await?,
            Node::Object(_) | Node::Thing(_) => {}
        }
        let gone = self.met(ConditionRole::DeletePostcondition, name, node, told).await?;
        let Told { done, conditions } = std::mem::take(told);
        Ok(Outcome::Deleted { done, conditions, gone })
    }

    /// Deletes all that there is of a dependent, under former names too. Adds each to what was `done`.
    async fn delete_all_of(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        self.look_for_unanswered(name, spec).await?;
        if spec.bulk {
            return self.delete_all(name, spec, done).await;
        }
        self.delete(name, spec, done).await?;
        if self.lets_formers_go(spec) {
            self.let_formers_go(name, spec, done).await?;
        }
        Ok(())
    }

    /// Creates or updates the object, or finds that it is as desired (`DR-2`). Adds the operation on each object to what was `done`.
    async fn reconcile(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        let source = self.source(name).await?;
        let primary = self.run.primary.key();
        if !spec.manage.create && !spec.manage.update {
            source.shows_all(Within::Related(primary))?;
            let found = source.related(primary);
            source.watched()?;
            done.extend(found.iter().map(|object| (object.key().to_string(), Operation::Unchanged)));
            return Ok(());
        }
        if spec.bulk {
            return self.reconcile_all((name, spec, source), done).await;
        }
        let answer = self.desired(name, spec).await?;
        let hash = self.run.controller.hash(&answer);
        if let Some(key) = self.remembered(name, source, hash) {
            self.is_called_so(spec, &key)?;
            self.want(name, spec, &key)?;
            done.push((key.to_string(), Operation::Unchanged));
            return Ok(());
        }
        let desired = self.complete(name, spec, &answer)?;
        self.want(name, spec, desired.key())?;
        let within = Within::Object(desired.key());
        source.known(within)?;
        is_watched(source, desired.key())?;
        let actual = source.get(desired.key()).filter(|object| self.belongs(name, spec, object));
        if let Some(actual) = &actual {
            source.was_shown(actual, self.run.primary.key());
        }
        let (operation, now) = self.bring_in_line((name, spec, source), (&desired, hash), actual).await?;
        if let Some(now) = now {
            self.tell_of_former(name, spec, source, now.key());
            self.remember(name, hash, &now);
        }
        done.push((desired.key().to_string(), operation));
        Ok(())
    }

    /// Writes the object if it differs. Returns the operation, and the object in its desired state, if that is known.
    async fn bring_in_line(
        &self,
        (name, spec, source): (&Arc<str>, &Dependent, &Source),
        (desired, hash): (&Desired, u64),
        actual: Option<Object>,
    ) -> Result<(Operation, Option<Object>), Stopped> {
        let basis = Basis::of(actual);
        let refusal = match self.write_upon(name, spec, (desired, hash), &basis).await {
            Ok(done) => return Ok(done),
            Err(Stopped::Refused(error)) if basis.is_doubted_by(&error, spec) => error,
            // With `create_only`, an existing object stays as it is.
            Err(Stopped::Refused(error)) if spec.create_only && error.is_conflict() => {
                return Err(Stopped::Failed(error.message));
            }
            Err(stopped) => return Err(stopped),
        };
        // An extra request, which is needed only after a refusal.
        let cluster = &self.run.controller.cluster;
        let looking = cluster.look(&spec.gvk, desired.key());
        let live = self.run.asked(looking).await;
        let live = live.map_err(|error| format!("{refusal}; whose it is can't be found out: {error}"))?;
        let found = live.clone();
        let basis = match (self.settle(name, spec, basis, live).await?, found) {
            (Some(basis), _) => basis,
            (None, Some(found)) if refusal.code == 422 => {
                return self.replace((name, spec, source), (desired, hash), &found, refusal).await;
            }
            (None, _) => return Err(refusal.into()),
        };
        // A cleanup may come before the caches show the object.
        if let Basis::Ours(found) = &basis {
            source.put(found.clone());
        }
        self.write_upon(name, spec, (desired, hash), &basis).await
    }

    async fn write_upon(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        (desired, wanted): (&Desired, u64),
        basis: &Basis,
    ) -> Result<(Operation, Option<Object>), Stopped> {
        let failed = |error: dependent::Error| Stopped::Failed(error.to_string());
        let manager = &self.run.controller.spec.field_manager;
        let actual = match basis {
            Basis::Absent | Basis::Adopted(_) => None,
            Basis::Ours(actual) => Some(actual),
        };
        let differs;
        let mut drift = Drift { name, of: Of::Object(spec, desired.key()), wanted, what: None };
        let (operation, write) = match (dependent::need(&spec.manage, actual), basis) {
            (Need::Nothing, _) => return Ok((Operation::Unchanged, None)),
            (_, Basis::Absent) if self.is_held(&drift).await => return Ok((Operation::Unchanged, None)),
            (_, Basis::Absent) => (Operation::Created, dependent::create(desired, spec, manager)),
            (_, Basis::Adopted(found)) => {
                (Operation::Updated, self.take_over(name, spec, found, desired).map_err(failed)?)
            }
            (_, Basis::Ours(actual)) => match self.compare(name, spec, actual, desired).await? {
                MatchResult::Matches => {
                    return Ok((Operation::Unchanged, Some(actual.clone())));
                }
                MatchResult::Differs(what) => {
                    differs = if spec.shows_secret { "in what may be of a Secret".to_owned() } else { what };
                    tracing::debug!(dependent = %name, object = %desired.key(), what = %differs, "differs from its desired state");
                    drift.what = Some(&differs);
                    if self.is_held(&drift).await {
                        return Ok((Operation::Unchanged, None));
                    }
                    let budget = &mut self.run.budget.lock();
                    let write = dependent::update(actual, desired, spec, manager, budget);
                    (Operation::Updated, write.map_err(failed)?)
                }
            },
        };
        let write = Write { shows_secret: spec.shows_secret, ..write };
        let source = self.source(name).await?;
        let now = match basis {
            Basis::Absent | Basis::Adopted(_) => self.make((name, spec, source), desired.key(), write).await,
            Basis::Ours(_) => self.write(source, desired.key(), write).await.map_err(Stopped::from),
        };
        let now = now.map_err(|stopped| self.told_upon(basis, spec, stopped.told_of(spec)))?;
        tracing::debug!(dependent = %name, object = %desired.key(), ?operation, "dependent written");
        // Only what would count against others is looked at once more.
        if self.has_matched((name, spec), desired.key(), wanted) && self.was_in_vain(actual, now.as_ref()) {
            let what = drift.what.unwrap_or_default();
            tracing::debug!(dependent = %name, object = %desired.key(), what, "the write has changed nothing: the API server makes it so");
        } else {
            self.note_put_right(&drift);
        }
        Ok((operation, now))
    }

    /// Returns true if a write has left an object as it was: nobody has changed it back, the API server fills in what is not wanted (`LG-1`).
    fn was_in_vain(&self, before: Option<&Object>, now: Option<&Object>) -> bool {
        let (Some(before), Some(now)) = (before, now) else { return false };
        let outcome = dependent::compare_outcome(before, now, &mut self.run.budget.lock());
        outcome.is_ok_and(|outcome| outcome == MatchResult::Matches)
    }

    /// Returns true if an object was found to match this very answer, whatever has become of it since.
    fn has_matched(&self, (name, spec): (&Arc<str>, &Dependent), key: &ObjectRef, answer: u64) -> bool {
        let Run { controller, primary, .. } = self.run;
        let known = if spec.bulk {
            controller.verdicts.verdict_of_bulk(primary, name, answer)
        } else {
            controller.verdicts.verdict(primary, name)
        };
        known.is_some_and(|known| known.answer == answer && known.key == *key)
    }

    /// Returns the key of the object that was found to match this very answer, if the object has not changed since.
    fn remembered(&self, name: &Arc<str>, source: &Source, answer: u64) -> Option<ObjectRef> {
        let Run { controller, primary, .. } = self.run;
        let known = controller.verdicts.verdict(primary, name)?;
        let same = known.answer == answer;
        let actual = source.get(&known.key).filter(|_| same)?;
        (actual.version() == known.version).then_some(known.key)
    }

    /// Remembers that an object matches an answer. This holds for the result of our own write too, so that defaults
    /// of the API server can't cause a loop of writes.
    fn remember(&self, name: &Arc<str>, answer: u64, now: &Object) {
        let Run { controller, primary, .. } = self.run;
        let verdict = verdicts::Verdict::of(answer, now);
        controller.verdicts.keep_verdict(primary, name, verdict);
    }

    /// Deletes the object, if it exists, is ours, is no other dependent's (`KD-13`) and is not already being deleted (`KD-9`).
    async fn delete(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        for actual in self.actual(name, spec).await? {
            if self.may_be_wanted(name, spec, &actual).await {
                continue;
            }
            self.delete_object(name, spec, &actual).await?;
            done.push((actual.key().to_string(), Operation::Deleted));
        }
        Ok(())
    }

    /// Deletes an object of a dependent that is not already being deleted.
    async fn delete_object(&self, name: &Arc<str>, spec: &Dependent, object: &Object) -> Result<(), Stopped> {
        let deletion = dependent::delete(spec.gvk.clone(), object);
        let deletion = Write { shows_secret: spec.shows_secret, ..deletion };
        self.delete_by(name, object, deletion).await.map_err(|stopped| stopped.told_of(spec))
    }

    async fn delete_by(&self, name: &Arc<str>, object: &Object, write: Write) -> Result<(), Stopped> {
        if object.header().deleting {
            return Ok(());
        }
        self.forget_contest(name, object.key());
        let source = self.source(name).await?;
        let deleting = self.run.controller.cluster.write(write);
        if let Some(left) = self.run.asked(deleting).await? {
            source.put(left);
        }
        tracing::debug!(dependent = %name, object = %object.key(), "dependent deleted");
        Ok(())
    }

    /// Returns the dependent's object from the caches. None if there is no object of its name, or if that object
    /// belongs to another owner. Does not ask for the desired state if no object exists that could be it. If its name can't be
    /// made any more, as what that was made from is gone, what it has made is its own (`DT-1`).
    async fn actual(&self, name: &Arc<str>, spec: &Dependent) -> Result<Vec<Object>, Stopped> {
        let source = self.source(name).await?;
        let primary = self.run.primary.key();
        let mut related = source.related(primary);
        if related.is_empty() && source.sees_all_of(primary) {
            return Ok(related);
        }
        let key = match self.key(name, spec).await {
            Ok(key) => key,
            Err(stopped) if self.is_found_by_mark(spec, &stopped) => match self.run.known_key(name) {
                Some(key) => key,
                None => return self.made_by(name, related, &BTreeSet::new()).await,
            },
            Err(stopped) => return Err(stopped),
        };
        source.known(Within::Object(&key))?;
        is_watched(source, &key)?;
        let is_own = |object: &Object| self.belongs(name, spec, object) && !self.is_taken(name, spec, object);
        related.retain(|object| *object.key() == key && is_own(object));
        Ok(related)
    }

    /// Whether an object is told by its mark if it can't be said how it is called: for that a template's values may be gone, and however wrong
    /// a primary has become, what was made of it goes with it (`VA-3`).
    fn is_found_by_mark(&self, spec: &Dependent, stopped: &Stopped) -> bool {
        match stopped {
            Stopped::Unmade(_) => spec.template.is_some() || self.mode == Mode::Cleanup,
            Stopped::Failed(_) => self.mode == Mode::Cleanup,
            Stopped::Refused(_)
            | Stopped::Unknown(_)
            | Stopped::Asked(_)
            | Stopped::Several(_)
            | Stopped::Unread(_) => false,
        }
    }

    fn scope(&self, spec: &Dependent) -> Scope {
        self.run.controller.cluster.scope(&spec.gvk).unwrap_or(Scope::Namespaced)
    }

    /// Returns what is made of the template, or else the guest's answer to `desired`, which is asked for once per run (`CX-3`).
    async fn desired(&self, name: &Arc<str>, spec: &Dependent) -> Result<Arc<str>, Stopped> {
        if let Some(answer) = self.run.desired(name) {
            return Ok(answer);
        }
        let answer: Arc<str> = if let Some(template) = &spec.template {
            self.made(template, spec, Part::Whole).await?.into()
        } else {
            let answer = self.session.desired(name, self.run.primary.json()).await;
            answer.map_err(|failure| failure.message)?.into()
        };
        self.run.keep_desired(name, &answer);
        Ok(answer)
    }

    /// Calls `reads` to read what is desired of a dependent.
    fn read<T>(&self, name: &str, spec: &Dependent, reads: impl FnOnce(&Origin<'_>, &mut Budget) -> T) -> T {
        let (scope, primary, primary_gvk) = (self.scope(spec), &self.run.primary, &self.run.controller.spec.primary);
        let origin = Origin { name, dependent: spec, scope, primary, primary_gvk, mark: &self.run.mark(name) };
        reads(&origin, &mut self.run.budget.lock())
    }

    /// Completes an answer of `desired` to the document that is sent.
    fn complete(&self, name: &Arc<str>, spec: &Dependent, answer: &str) -> Result<Desired, Stopped> {
        let desired = self.read(name, spec, |origin, budget| Desired::parse(answer, origin, budget));
        let desired = desired.map_err(|error| {
            let kept_back = || format!("what is desired of {name} is not as it has to be, in what may be of a Secret");
            Stopped::Unmade(if spec.shows_secret { kept_back() } else { error.to_string() })
        })?;
        let permissions = &self.run.controller.permissions;
        let reach = permissions.in_reach(&spec.gvk, desired.key());
        reach.map_err(|denied| denied.message)?;
        // A finalizer would keep the object, and its namespace, for as long as it is not removed.
        let finalizers = desired.tree().pointer("/metadata/finalizers");
        if finalizers.and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
            let held = permissions.permit(Permission::Delete, &spec.gvk, desired.key());
            held.map_err(|denied| {
                let key = desired.key();
                format!("{key}: it would get finalizers, which takes `delete`: {}", denied.message)
            })?;
        }
        self.is_called_so(spec, desired.key())?;
        if !spec.bulk {
            self.run.keep_key(name, desired.key());
        }
        Ok(desired)
    }

    /// Writes an object and returns the answer. The event of the write causes no run, unless it may be that of
    /// another client's change.
    async fn write(&self, source: &Source, key: &ObjectRef, write: Write) -> Result<Option<Object>, cluster::Error> {
        let controller = &self.run.controller;
        let window = source.begin(key.clone(), |triggers| (controller.tell)(triggers));
        let now = self.run.asked(controller.cluster.write(write)).await?;
        if let Some(now) = &now {
            window.answered(now.clone(), &controller.spec.field_manager);
        }
        Ok(now)
    }

    /// Returns the source that holds a dependent. Fails unless the source knows all objects that belong to the
    /// primary, and the controller still watches that.
    async fn source(&self, name: &Arc<str>) -> Result<&Arc<Source>, Stopped> {
        let source = self.run.controller.secondaries.get(name);
        let source = source.ok_or_else(|| format!("no source holds dependent {name}"))?;
        self.heed(source).await?;
        source.known(Within::Related(self.run.primary.key()))?;
        // Namespaces that are left during a run show nothing any more: what was there is not absent.
        is_watched(&self.run.controller.primaries, self.run.primary.key())?;
        Ok(source)
    }
}

/// Fails if an object of this name would not be seen: then it is not known whether there is one.
fn is_watched(source: &Source, key: &ObjectRef) -> Result<(), Stopped> {
    if source.watches(key) {
        return Ok(());
    }
    Err(format!("{key} is in a namespace that this controller does not watch: add it to `namespaces`").into())
}
