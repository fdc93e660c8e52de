//! Which conditions primaries are given: what does not go with them.

use std::sync::Arc;

use super::super::conditions::LONGEST_MANAGER;
use super::super::keep::Path;
use super::super::names::FieldManager;
use super::super::{StatusConditions, raw};
use super::{Check, get, located};
use crate::kinds::is_built_in;
use crate::object::Gvk;
use crate::yaml::{Located, Scalar};

impl Check<'_> {
    /// Returns which conditions the primaries of a controller are given, and finds what they can't be given to, or under which name not.
    pub(super) fn status_conditions(
        &mut self,
        controller: &Arc<str>,
        raw: &raw::Controller,
        primary: Option<&Gvk>,
    ) -> StatusConditions {
        let Some(Located { value: StatusConditions::Standard, place }) = located(&raw.status_conditions) else {
            return StatusConditions::None;
        };
        if let Some(kind) = primary.filter(|kind| is_built_in(kind)) {
            self.fault(*place, format!("found `standard` for {kind}, a kind of Kubernetes itself, whose conditions others keep; expected a kind of your own, or leave it out"));
        }
        let manager = get(&raw.field_manager).map_or(controller, |Scalar(FieldManager(manager))| manager);
        if manager.len() > LONGEST_MANAGER {
            self.fault(*place, format!("found `standard` beside a field manager of {} bytes, under which they are written with `/conditions` behind it; expected at most {LONGEST_MANAGER}", manager.len()));
        }
        StatusConditions::Standard
    }
}

/// Returns the field of primaries that is looked at for their conditions.
pub(super) fn looked_at(conditions: StatusConditions) -> Option<(&'static str, Path)> {
    let path = || ["status", "conditions"].map(str::to_owned).to_vec();
    match conditions {
        StatusConditions::None => None,
        StatusConditions::Standard => Some(("statusConditions", path())),
    }
}
