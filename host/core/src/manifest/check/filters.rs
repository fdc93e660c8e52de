//! The filters of primaries, sources and dependents.

use std::sync::Arc;

use super::super::filters::{Filters, OBJECT, OLD_OBJECT, Question, UNKNOWN};
use super::super::names::Export;
use super::super::raw::{self, AddFilter, DeleteFilter, Maybe, UpdateFilter, defaults};
use super::{Check, flag, get, located, or};
use crate::cel::{Expression, Right};
use crate::yaml::{Leaf, Located, Slot};

/// CF-3: without the built-in rules every update counts, as it does for whoever does not look at generations.
pub(super) fn generation_aware(raw: &raw::Controller, defaults: &defaults::Controllers) -> bool {
    flag(or(&raw.generation_aware, &defaults.generation_aware), true) && flag(&raw.default_filters, true)
}

impl Check<'_> {
    /// Returns the filters of primaries.
    pub(super) fn primary_filters(&mut self, raw: &raw::Controller) -> Filters {
        if let Some(aware) = located(&raw.generation_aware).filter(|_| !flag(&raw.default_filters, true)) {
            self.fault(
                aware.place,
                "found `generationAware` together with `defaultFilters: false`, which leaves it out; expected one of them",
            );
        }
        let Some(raw) = get(&raw.filters) else {
            return Filters::default();
        };
        Filters {
            on_add: self.add_filter(&raw.on_add),
            on_update: self.update_filter(&raw.on_update),
            on_delete: None,
            generic: self.add_filter(&raw.generic),
        }
    }

    /// Returns the filters of secondaries.
    pub(super) fn filters(&mut self, field: &Maybe<raw::Filters>) -> Filters {
        let Some(raw) = get(field) else {
            return Filters::default();
        };
        Filters {
            on_add: self.add_filter(&raw.on_add),
            on_update: self.update_filter(&raw.on_update),
            on_delete: self.delete_filter(&raw.on_delete),
            generic: self.add_filter(&raw.generic),
        }
    }

    /// Finds filters of a dependent that has no source of its own to filter.
    pub(super) fn filtered_source(&mut self, raw: &raw::Dependent) {
        let any = |filters: &&Located<raw::Filters>| {
            let raw::Filters { on_add, on_update, on_delete, generic } = &filters.value;
            on_add.is_some() || on_update.is_some() || on_delete.is_some() || generic.is_some()
        };
        if let (Some(filters), Some(_)) = (located(&raw.filters).filter(any), &raw.source) {
            self.fault(filters.place, "found `filters` together with `source`; expected them at that source");
        }
    }

    fn add_filter(&mut self, field: &Maybe<AddFilter>) -> Option<Question> {
        let Located { value, place } = located(field)?;
        match value {
            AddFilter::Cel(cel) => self.asked(cel, *place, (&[OBJECT], Right::Boolean)).map(Question::Cel),
            AddFilter::Export(export) => self.asked_of(export, *place).map(Question::Export),
        }
    }

    fn update_filter(&mut self, field: &Maybe<UpdateFilter>) -> Option<Question> {
        let Located { value, place } = located(field)?;
        match value {
            UpdateFilter::Cel(cel) => {
                self.asked(cel, *place, (&[OBJECT, OLD_OBJECT], Right::Boolean)).map(Question::Cel)
            }
            UpdateFilter::Export(export) => self.asked_of(export, *place).map(Question::Export),
        }
    }

    fn delete_filter(&mut self, field: &Maybe<DeleteFilter>) -> Option<Question> {
        let Located { value, place } = located(field)?;
        match value {
            DeleteFilter::Cel(cel) => self.asked(cel, *place, (&[OBJECT, UNKNOWN], Right::Boolean)).map(Question::Cel),
            DeleteFilter::Export(export) => self.asked_of(export, *place).map(Question::Export),
        }
    }

    /// Returns the name of an export that is asked about events.
    pub(super) fn asked_of(&mut self, export: &Leaf<Export>, place: usize) -> Option<Arc<str>> {
        self.asked += 1;
        self.need(export, place, "export").map(|export| Arc::clone(&export.value.0.0))
    }

    /// Returns an expression that is asked about events.
    pub(super) fn asked(
        &mut self,
        cel: &Slot<String>,
        place: usize,
        over: (&[&'static str], Right),
    ) -> Option<Expression> {
        self.asked += 1;
        self.cel(cel, place, over)
    }
}
