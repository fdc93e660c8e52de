//! What the daemon's defaults mean: a field of them is as that of a manifest, and what manifests leave out is as they say, within a ceiling.

use super::super::raw::{self, Maybe, MaybeLeaf, defaults};
use super::super::units::Workers;
use super::super::{Applied, Limits};
use super::Check;
use super::fields::{field_validation, flag, get, located, workers};
use crate::cluster::FieldValidation;
use crate::yaml::{Located, Slot};

/// The defaults of a daemon.
#[derive(Default)]
pub(in crate::manifest) struct Given {
    pub(super) controllers: defaults::Controllers,
    pub(super) applied: Applied,
}

/// What holds for dependents that say nothing of it.
#[derive(Clone, Copy)]
pub(super) struct Usual<'g> {
    /// What becomes of fields that their kinds do not have.
    pub(super) validation: FieldValidation,
    pub(super) applied: &'g Applied,
}

impl Given {
    /// Returns what holds for the dependents of a controller.
    pub(super) fn usual(&self, raw: &raw::Controller) -> Usual<'_> {
        Usual { validation: field_validation(raw, &self.controllers), applied: &self.applied }
    }
}

impl<'a> Check<'a> {
    /// Returns the same below a ceiling: what is left out is not more than these limits.
    pub(in crate::manifest) fn below(self, most: Option<&'a Limits>) -> Self {
        Self { most, ..self }
    }

    /// Returns how many runs there are at once: as it is written, or as usual, as far as a ceiling permits that.
    pub(super) fn concurrency(&self, written: &MaybeLeaf<Workers>, usual: &MaybeLeaf<Workers>) -> usize {
        let usual = workers(usual, Limits::default().concurrency);
        workers(written, self.most.map_or(usual, |most| usual.min(most.concurrency)))
    }

    /// Returns the defaults; if not, or if anything was found wrong, there is a fault.
    pub(in crate::manifest) fn defaults(&mut self, document: Slot<defaults::Document>) -> Option<Given> {
        let Slot::Read(Located { value: document, place }) = document else {
            return None;
        };
        self.need(&document.spec, place, "spec");
        let Slot::Read(Located { value: spec, place }) = document.spec else {
            return None;
        };
        let applied = self.applied(&spec.dependents);
        let controllers = match spec.controllers {
            Some(Slot::Read(Located { value, .. })) => value,
            Some(Slot::Wrong) => return None,
            Some(Slot::Missing) | None if located(&spec.dependents).is_some() => defaults::Controllers::default(),
            Some(Slot::Missing) | None => {
                self.fault(place, "found neither `controllers` nor `dependents`; expected one of them at least");
                return None;
            }
        };
        self.retry(&controllers.retry);
        self.rate_limit(&controllers.rate_limit);
        Some(Given { controllers, applied })
    }

    fn applied(&mut self, field: &Maybe<defaults::Dependents>) -> Applied {
        let usual = Applied::default();
        let Some(raw) = get(field) else {
            return usual;
        };
        let listed = located(&raw.server_side_apply_except).map(|Located { value, .. }| {
            let read = value.iter().filter_map(Slot::read);
            let kinds = read.filter_map(|Located { value, place }| self.gvk(&value.api_version, &value.kind, *place));
            kinds.map(|gvk| gvk.group_kind()).collect()
        });
        Applied { usual: flag(&raw.server_side_apply, true), except: listed.unwrap_or(usual.except) }
    }
}
