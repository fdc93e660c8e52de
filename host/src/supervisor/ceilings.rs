//! Refuses versions of operators of other namespaces whose kinds the API server calls otherwise than their ceiling permits, and ends what is above a
//! ceiling by now (CE-6, CE-7).

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::kinds::kind_name;
use capstan_core::manifest::Operator;
use capstan_core::operator::ceiling::kinds::{Served, Told, custom};
use capstan_core::rollout::plan::Attempt;

use super::Supervisor;
use super::supply::{Above, Refusal};
use crate::client::{ApiServer, Kind, Within};
use crate::controller::Environment;

/// The ceiling of an operator, and who tells what its kinds are called.
pub(super) struct Judge {
    within: Within,
    api: Arc<ApiServer>,
}

impl Judge {
    /// Returns who judges an operator; none if it is one of the daemon's own.
    pub(super) fn of(operator: &Operator, environment: &Environment) -> Option<Self> {
        let home = operator.controllers.values().find_map(|controller| controller.home.as_ref())?;
        Some(Self { within: environment.ceilings.of(home), api: Arc::clone(&environment.api) })
    }

    /// Asks what the kinds of an operator are called, and refuses it if that is more than its ceiling permits. Kinds that are not served yet are looked at
    /// when they are.
    pub(super) async fn judge(&self, operator: &Operator) -> Result<(), Refusal> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for gvk in custom(operator) {
            groups.entry(gvk.api_version()).or_default().push(gvk);
        }
        let mut told = Told::new();
        for (group, kinds) in groups {
            let Some(first) = kinds.first() else { continue };
            self.api.look_again(first).await.map_err(|error| {
                let why = format!(
                    "what the API server calls the kinds of {group} is not known, and nothing is guessed: {error}"
                );
                Refusal::new("ceiling", &why)
            })?;
            let known = kinds.into_iter().filter_map(|gvk| self.api.known(gvk));
            told.extend(known.map(|Kind { gvk, plural, scope }| (kind_name(&gvk), Served { plural, scope })));
        }
        let found = self.within.excess(operator, &told);
        if found.is_empty() { Ok(()) } else { Err(Refusal::new("ceiling", &found.join("\n"))) }
    }
}

impl Supervisor {
    /// Ends what is in force above a ceiling that is lower by now, with its last good version: a ceiling is what is permitted now.
    pub(super) fn end_above(&mut self) {
        let running = self.in_force_as_operators();
        let told = self.told(running.iter().chain(&self.operators));
        let Above { beyond, without_room } = self.supply.above(&self.operators, &told);
        self.operators
            .retain(|operator| ![&beyond, &without_room].iter().any(|above| above.contains_key(&operator.name)));
        // What they say now may be within it, or what goes on in its place. CE-5: room is for what is wanted.
        let mut over = self.supply.above(&running, &told).beyond;
        over.extend(without_room);
        for (name, why) in over {
            let why = why.replace('\n', "; ");
            tracing::error!(operator = %name, %why, "the operator ends: it is more than its ceiling permits by now");
            self.in_force.retain(|unit, _| unit.operator != name);
            self.tried.remove(&name);
            let controllers = self.controllers.iter().filter(|(_, running)| running.operator == name);
            for controller in controllers.map(|(controller, _)| Arc::clone(controller)).collect::<Vec<_>>() {
                self.stop_controller(&controller, "it is above the ceiling of its namespace");
            }
        }
    }

    /// Returns the operators that are wanted, as they are in force.
    fn in_force_as_operators(&self) -> Vec<Operator> {
        let wanted: BTreeMap<_, _> = self.operators.iter().map(|operator| (&operator.name, operator)).collect();
        let mut running = BTreeMap::<_, Operator>::new();
        for (unit, version) in &self.in_force {
            let Attempt { plugin, controllers, on_new_version, .. } = &version.attempt;
            // The others end by themselves.
            let Some(declared) = wanted.get(&unit.operator) else {
                continue;
            };
            let operator = running.entry(&unit.operator).or_insert_with(|| Operator {
                name: Arc::clone(&unit.operator),
                plugins: BTreeMap::new(),
                controllers: BTreeMap::new(),
                on_new_version: *on_new_version,
                origin: declared.origin.clone(),
            });
            operator.plugins.insert(Arc::clone(&unit.plugin), plugin.clone());
            operator.controllers.extend(controllers.clone());
        }
        running.into_values().collect()
    }

    /// Returns what the API server has called the kinds of operators.
    fn told<'o>(&self, operators: impl Iterator<Item = &'o Operator>) -> Told {
        let known = operators.flat_map(custom).filter_map(|gvk| self.environment.api.known(gvk));
        known.map(|Kind { gvk, plural, scope }| (kind_name(&gvk), Served { plural, scope })).collect()
    }
}
