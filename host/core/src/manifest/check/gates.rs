//! The conditions of dependents: what they are made of, and readiness that suits another kind.

use std::sync::Arc;

use super::super::raw::{self, Maybe};
use super::super::{Condition, ReadyKind};
use super::{Check, located};
use crate::cel::Right;
use crate::object::Gvk;
use crate::workflow::condition;
use crate::yaml::Located;

impl Check<'_> {
    pub(super) fn condition(
        &mut self,
        field: &Maybe<raw::Condition>,
        gvk: Option<&Gvk>,
        bulk: bool,
    ) -> Option<Condition> {
        let Located { value, place } = located(field)?;
        match value {
            raw::Condition::Gone => Some(Condition::Gone),
            raw::Condition::CrdPresent => Some(Condition::CrdPresent),
            raw::Condition::Cel(cel) => {
                let variables = if bulk { &condition::VARIABLES_OF_BULK } else { &condition::VARIABLES };
                self.cel(cel, *place, (variables, Right::Boolean)).map(Condition::Cel)
            }
            raw::Condition::Export(export) => {
                self.need(export, *place, "export").map(|export| Condition::Export(Arc::clone(&export.value.0.0)))
            }
            raw::Condition::Ready(ready) => {
                let ready = self.need(ready, *place, "ready")?;
                if let Some((gvk, (group, kind))) = gvk.zip(judged(ready.value))
                    && (&*gvk.group, &*gvk.kind) != (group, kind)
                {
                    self.fault(
                        ready.place,
                        format!("found the readiness of a {kind} for {gvk}; `condition` suits other kinds"),
                    );
                }
                Some(Condition::Ready(ready.value))
            }
        }
    }
}

/// Returns the group and name of the one kind that is judged so.
fn judged(ready: ReadyKind) -> Option<(&'static str, &'static str)> {
    match ready {
        ReadyKind::Deployment => Some(("apps", "Deployment")),
        ReadyKind::StatefulSet => Some(("apps", "StatefulSet")),
        ReadyKind::DaemonSet => Some(("apps", "DaemonSet")),
        ReadyKind::ReplicaSet => Some(("apps", "ReplicaSet")),
        ReadyKind::Pod => Some(("", "Pod")),
        ReadyKind::Job => Some(("batch", "Job")),
        ReadyKind::Condition => None,
    }
}
