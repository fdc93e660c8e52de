//! How Kubernetes Events about primaries are written.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use super::super::events::{EVENT, EventKey, Events, PRIMARY};
use super::super::raw::{self, Maybe};
use super::{Check, flag, get, located};
use crate::cel::Right;
use crate::yaml::Located;

impl Check<'_> {
    pub(super) fn events(&mut self, field: &Maybe<raw::Events>) -> Events {
        let Some(raw) = get(field) else {
            return Events::default();
        };
        let variables = [PRIMARY, EVENT];
        let key = match located(&raw.key) {
            None | Some(Located { value: raw::EventKey::Message, .. }) => EventKey::Message,
            Some(Located { value: raw::EventKey::TypeAndReason, .. }) => EventKey::TypeAndReason,
            Some(Located { value: raw::EventKey::Cel(cel), place }) => {
                self.cel(cel, *place, (&variables, Right::Text)).map_or(EventKey::Message, EventKey::Cel)
            }
        };
        let name = located(&raw.name).and_then(|Located { value: raw::EventName::Cel(cel), place }| {
            self.cel(cel, *place, (&variables, Right::Text))
        });
        Events {
            key,
            name,
            owner_reference: flag(&raw.owner_reference, false),
            of_failures: flag(&raw.of_failures, true),
        }
    }
}
