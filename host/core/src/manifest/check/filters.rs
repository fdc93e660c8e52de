//! The filters of primaries, sources and dependents.

use super::super::filters::{Filters, OBJECT, OLD_OBJECT, UNKNOWN};
use super::super::raw::{self, AddFilter, DeleteFilter, Maybe, UpdateFilter};
use super::{Check, flag, get, located};
use crate::cel::Expression;
use crate::yaml::{Located, Slot};

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

    fn add_filter(&mut self, field: &Maybe<AddFilter>) -> Option<Expression> {
        let Located { value: AddFilter::Cel(cel), place } = located(field)?;
        self.asked(cel, *place, &[OBJECT])
    }

    fn update_filter(&mut self, field: &Maybe<UpdateFilter>) -> Option<Expression> {
        let Located { value: UpdateFilter::Cel(cel), place } = located(field)?;
        self.asked(cel, *place, &[OBJECT, OLD_OBJECT])
    }

    fn delete_filter(&mut self, field: &Maybe<DeleteFilter>) -> Option<Expression> {
        let Located { value: DeleteFilter::Cel(cel), place } = located(field)?;
        self.asked(cel, *place, &[OBJECT, UNKNOWN])
    }

    /// Returns an expression that is asked about events.
    pub(super) fn asked(&mut self, cel: &Slot<String>, place: usize, variables: &[&'static str]) -> Option<Expression> {
        self.asked += 1;
        self.cel(cel, place, variables)
    }
}
