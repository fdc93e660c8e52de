//! Refuses versions whose finalizers would do harm: those that leave some behind on primaries, and those that have one in common with
//! another controller (`LC-3`).

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_core::guest::Interface;
use capstan_core::manifest::{Clash, Controller, Finalizing, Where};
use capstan_core::rbac;
use capstan_core::reconciler::finalizer::default_name;
use capstan_core::rollout::plan::Attempt;

use super::load::Outcome;
use super::supply::{Component, Refusal};
use super::{Running, Supervisor};
use crate::client::Kind;

/// A controller that is in force, or about to be.
struct Beside {
    operator: Arc<str>,
    spec: Controller,
    finalizer: String,
    uses: bool,
}

impl Beside {
    fn finalizing(&self) -> Finalizing<'_> {
        Finalizing::new(&self.spec, Some(&self.finalizer), self.uses)
    }
}

impl Supervisor {
    /// Returns what was loaded for an operator, without the versions whose finalizers would do harm.
    pub(super) fn with_safe_finalizers(&self, operator: &Arc<str>, units: Vec<Outcome>) -> Vec<Outcome> {
        let mut beside = self.beside(&units);
        let units = units.into_iter().map(|(unit, attempt, loaded)| {
            let loaded = loaded.and_then(|plugin| {
                self.keeps_finalizers(&attempt, &*plugin)?;
                let own = self.of_version(operator, &attempt, &*plugin);
                self.shares_none(&own, &beside)?;
                beside.extend(own);
                Ok(plugin)
            });
            (unit, attempt, loaded)
        });
        units.collect()
    }

    /// Returns what stays in force beside units that are put in place.
    fn beside(&self, units: &[Outcome]) -> Vec<Beside> {
        let replaced = |name: &str| {
            let mut loaded = units.iter().filter(|(_, _, loaded)| loaded.is_ok());
            loaded.any(|(_, attempt, _)| attempt.controllers.contains_key(name))
        };
        let wanted: BTreeSet<_> = self.operators.iter().flat_map(|operator| operator.controllers.keys()).collect();
        let all = self
            .in_force
            .iter()
            .flat_map(|(unit, version)| self.of_version(&unit.operator, &version.attempt, &*version.plugin));
        all.filter(|beside| wanted.contains(&beside.spec.name) && !replaced(&beside.spec.name)).collect()
    }

    fn of_version(&self, operator: &Arc<str>, attempt: &Attempt, plugin: &dyn Component) -> Vec<Beside> {
        let controllers = attempt.controllers.values().map(|spec| {
            let declared = Finalizing::declared(spec);
            Beside {
                operator: Arc::clone(operator),
                finalizer: declared.name.map_or_else(|| self.default_finalizer(spec), str::to_owned),
                // AE-1: in all-events mode they are the component's own.
                uses: declared.uses || (!spec.all_events() && plugin.exports(Interface::Cleaner)),
                spec: spec.clone(),
            }
        });
        controllers.collect()
    }

    /// Returns the default finalizer of a kind; by the plural that is guessed, where nobody has asked for it yet.
    fn default_finalizer(&self, spec: &Controller) -> String {
        let gvk = &spec.primary;
        let guessed = || match &*gvk.group {
            "" => rbac::plural_of(gvk),
            group => format!("{}.{group}", rbac::plural_of(gvk)),
        };
        let known = self.environment.api.known(gvk);
        default_name(&known.as_ref().map_or_else(guessed, Kind::full_name))
    }

    /// Refuses controllers that would take away the finalizers of others, or lose theirs to them.
    fn shares_none(&self, own: &[Beside], beside: &[Beside]) -> Result<(), Refusal> {
        let finalizing: Vec<_> = own.iter().chain(beside).map(|beside| (beside, beside.finalizing())).collect();
        let (own, beside) = finalizing.split_at(own.len());
        for (number, (one, finalizing)) in own.iter().enumerate() {
            let kind = self.environment.api.known(&one.spec.primary);
            let place = Where { scope: kind.map(|kind| kind.scope), own: Some(&self.environment.home.own) };
            // Those of the same version are compared, too.
            for (other, its) in beside.iter().chain(own.iter().take(number)) {
                let Some(clash) = finalizing.clash(its, place) else { continue };
                let finalizer = if clash == Clash::Formerly { &other.finalizer } else { &one.finalizer };
                let whose = format!("controller {} of operator {}", other.spec.name, other.operator);
                let name = &one.spec.name;
                let message = clash.message(&one.spec, &whose, Some(finalizer));
                return Err(Refusal::new("finalizers", &format!("controller {name}: {message}")));
            }
        }
        Ok(())
    }

    /// Refuses a version that would leave finalizers on primaries which nobody removes any more.
    fn keeps_finalizers(&self, attempt: &Attempt, plugin: &dyn Component) -> Result<(), Refusal> {
        for (name, spec) in &attempt.controllers {
            let Some(Running { handle, .. }) = self.controllers.get(name) else {
                continue;
            };
            let behind = handle.left_behind(spec, plugin, &self.environment).map_err(|doubt| {
                let message = format!(
                    "controller {name}: the new version does not use a finalizer of the running one, and it is not known whether primaries carry it: {doubt}; it is tried again, or name it in `finalizers: {{ formerly: […] }}` in spec.controllers.{}",
                    spec.own_name
                );
                Refusal::new("finalizers", &message)
            })?;
            let Some((finalizer, primaries)) = behind.first_key_value() else {
                continue;
            };
            let names: Vec<_> = behind.keys().map(|name| &**name).collect();
            // AE-1
            let cure = if spec.all_events() {
                format!("`finalizer: {finalizer}` in spec.controllers.{}, and let `reconcile` remove it", spec.own_name)
            } else {
                let names = names.join(", ");
                let own = &spec.own_name;
                format!("`finalizers: {{ formerly: [{names}] }}` in spec.controllers.{own}, then each run removes it")
            };
            let message = format!(
                "check controller {name}: {primaries} primaries carry the finalizer {finalizer}, which the new version neither uses nor names, so that they could not be deleted any more; say {cure}"
            );
            return Err(Refusal::new("check", &message));
        }
        Ok(())
    }
}
