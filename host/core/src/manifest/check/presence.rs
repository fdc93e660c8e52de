//! Where `crdPresent` may stand: in the activation of a dependent whose kind nothing else needs (`WF-11`).

use super::super::names::Name;
use super::super::raw::{self, Maybe};
use super::{Check, located};
use crate::yaml::Scalar;

impl Check<'_> {
    /// Finds `crdPresent` where the kind has to be there in any case.
    pub(super) fn presence(&mut self, raw: &raw::Dependent) {
        let asks = |field: &Maybe<raw::Condition>| {
            let field = located(field).filter(|field| matches!(field.value, raw::Condition::CrdPresent));
            field.map(|field| field.place)
        };
        for (name, field) in [
            ("reconcilePrecondition", &raw.reconcile_precondition),
            ("readyPostcondition", &raw.ready_postcondition),
            ("deletePostcondition", &raw.delete_postcondition),
        ] {
            if let Some(place) = asks(field) {
                self.fault(place, format!("found `crdPresent` in `{name}`; expected it in `activation`, without which the kind has to be there in any case"));
            }
        }
        if let (Some(place), Some(source)) = (asks(&raw.activation), located(&raw.source)) {
            let Scalar(Name(source)) = &source.value;
            self.fault(place, format!("found `crdPresent` together with `source: {source}`, which needs the kind in any case; expected one of them"));
        }
    }
}
