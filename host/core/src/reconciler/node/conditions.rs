//! Asks the conditions of a node, and decides what follows from its activation.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::visitor::{Stopped, Told, Visitor};
use crate::cluster::Cluster as _;
use crate::guest::{ConditionResult, ConditionRole};
use crate::manifest::{Condition, Node};
use crate::object::Object;
use crate::reconciler::verdicts;
use crate::source::registered::Unfilled;
use crate::workflow::condition::{self, Found};

impl Visitor<'_> {
    /// Returns true if a condition is met; a missing one is. Adds the result of the condition to `told`.
    pub(super) async fn met(
        &self,
        role: ConditionRole,
        name: &Arc<str>,
        node: Node<'_>,
        told: &mut Told,
    ) -> Result<bool, Stopped> {
        let Some(declared) = node.conditions().of(role) else {
            return Ok(true);
        };
        let result = match declared {
            Condition::Export(export) => {
                let asked = self.session.is_met(export, name, self.run.primary.json()).await;
                asked.map_err(|failure| format!("condition {export}: {failure}"))?
            }
            Condition::Cel(expression) => {
                let primary = self.run.primary_tree().map_err(|e| e.to_string())?;
                let found = if declared.reads_dependent() {
                    self.found(name, node).await?
                } else {
                    Found::nothing(node.bulk())
                };
                let budget = &mut self.run.budget.lock();
                let met = condition::met(expression, &primary, &found, node.shows_secret(), budget);
                met.map_err(|failure| failure.to_string())?
            }
            Condition::CrdPresent => self.present(name, node).await?,
            Condition::Ready(kind) => condition::ready(*kind, &self.found(name, node).await?),
            Condition::Gone => {
                let mut left = self.found(name, node).await?;
                if left == Found::One(Value::Null)
                    && role == ConditionRole::DeletePostcondition
                    && let Node::Object(spec) = node
                    && self.lets_formers_go(spec)
                    && let Some(former) = self.formers(name, spec).await?.first()
                {
                    let tree = former.tree(&mut self.run.budget.lock());
                    left = Found::One(tree.map_err(|e| e.to_string())?);
                }
                condition::gone(&left)
            }
        };
        let met = result.met;
        if role == ConditionRole::Activation {
            // What looks at the object itself has to be asked again when that changes.
            self.keep_activity(name, met || declared.reads_dependent());
            self.watch(name, met).await;
        }
        told.conditions.push((role, result));
        Ok(met)
    }

    /// Remembers if a dependent is active, before its object is read: from then on, a change of an active dependent's
    /// object causes a run.
    fn keep_activity(&self, name: &Arc<str>, active: bool) {
        let controller = &self.run.controller;
        let Some(source) = controller.secondaries.get(name) else {
            return;
        };
        let held = &source.spec().name;
        // A source that the manifest declares causes runs, even if its dependents are inactive.
        let memory = &controller.verdicts;
        let sharers = || {
            let sharers = controller.secondaries.iter().filter(|(_, other)| Arc::ptr_eq(other, source));
            sharers.map(|(name, _)| Arc::clone(name)).collect()
        };
        let asleep = (!active && !controller.spec.sources.contains_key(held)).then(|| verdicts::Asleep {
            source: Arc::clone(held),
            sharers: memory.sharers(&self.run.primary, held).unwrap_or_else(sharers),
            object: self.run.known_key(name),
        });
        let holding = || controller.guest.lasting();
        memory.keep_activity(controller.edition, &self.run.primary, (name, asleep), holding);
    }

    /// Has the source of a dependent watched while that is active, and waits until it is filled; and not while it is inactive for all
    /// primaries (`WF-12`).
    async fn watch(&self, name: &Arc<str>, active: bool) {
        let controller = &self.run.controller;
        let Some(source) = controller.secondaries.get(name) else {
            return;
        };
        let (held, user) = (&source.spec().name, (self.run.primary.key().clone(), Arc::clone(name)));
        if active {
            let by = Instant::now() + controller.spec.cache_sync_timeout;
            let entered = controller.on_demand.enter(held, user, by).await;
            if entered.is_err_and(|Unfilled { outage, .. }| outage) {
                self.run.missed_server();
            }
        } else {
            controller.on_demand.leave(held, &user).await;
        }
    }

    /// Returns whether a dependent's kind is there (`WF-11`); what is outside of the cluster has none, and is not asked for it.
    async fn present(&self, name: &Arc<str>, node: Node<'_>) -> Result<ConditionResult, Stopped> {
        let Node::Object(spec) = node else {
            return Ok(ConditionResult::met());
        };
        let served = self.run.serves(&spec.gvk).await?;
        let source = self.run.controller.secondaries.get(name);
        Ok(condition::present(served, source.is_some_and(|source| source.is_without_kind())))
    }

    /// Returns what there is of a dependent.
    pub(super) async fn found(&self, name: &Arc<str>, node: Node<'_>) -> Result<Found, Stopped> {
        let spec = match node {
            Node::Object(spec) => spec,
            Node::Thing(spec) => return self.found_outside(name, spec).await,
        };
        let tree = |object: Object| object.tree(&mut self.run.budget.lock()).map_err(|e| e.to_string());
        if spec.bulk {
            let all = self.members(name, spec, &BTreeSet::new()).await?;
            return Ok(Found::Many(all.into_iter().map(tree).collect::<Result<_, _>>()?));
        }
        let actual = self.actual(name, spec).await?.pop();
        Ok(Found::One(actual.map(tree).transpose()?.unwrap_or_default()))
    }
}
