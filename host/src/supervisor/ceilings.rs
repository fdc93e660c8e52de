//! Refuses versions of operators of other namespaces whose kinds the API server calls otherwise than their ceiling permits (CE-6).

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::kinds::kind_name;
use capstan_core::manifest::Operator;
use capstan_core::operator::ceiling::kinds::{Served, Told, custom};

use super::supply::Refusal;
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
