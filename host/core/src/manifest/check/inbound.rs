//! The sources that take requests from outside: that it is said who may send, and that bodies are no larger than a call can take.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::inbound::{BodyForm, Inbound, LARGEST_BODY, Senders, TOKEN_KEY};
use super::super::names::{DataKey, HolderName};
use super::super::polls::{Each, External, Polled};
use super::super::raw::{self, Maybe, MaybeLeaf};
use super::super::units::{Bytes, Times};
use super::super::{ConfigValue, Holder};
use super::{Check, get, located, polls, workers};
use crate::object::pointer::Pointer;
use crate::yaml::{Located, OrWord, Scalar};

/// The sources that take requests, by name: what is let in.
pub(super) type Doors = BTreeMap<Arc<str>, Inbound>;

impl Check<'_> {
    /// Returns what is kept of what requests tell, and which requests are let in.
    pub(super) fn inbound(&mut self, inbound: &Located<raw::Inbound>) -> Option<(External, Inbound)> {
        let Located { value: raw, place } = inbound;
        let senders = self.senders(raw, *place);
        let id = get(&raw.id).map_or_else(|| Pointer::parse("/id").ok(), |pointer| Some(pointer.0.clone()));
        let (things, memory) = polls::bounds(&raw.bounded);
        let body_size = self.body_size(&raw.body_size);
        let per_second = get(&raw.requests_per_second).map_or(10, |Scalar(Times(times))| *times);
        let body = body_form(&raw.body);
        let fetch = get(&raw.fetch).map(|fetch| self.fetch(fetch));
        let filters = self.filters(&raw.filters);
        let external = External { id: id?, things, memory, filters, polled: Polled::Inbound(fetch) };
        Some((external, Inbound { senders: senders?, body, body_size, per_second }))
    }

    fn fetch(&mut self, raw: &raw::Fetch) -> Each {
        let every = located(&raw.every).map(|every| self.period(every));
        let concurrency = workers(&raw.concurrency, 1);
        Each { every, first_after: every.unwrap_or_default(), when: None, concurrency }
    }

    fn senders(&mut self, raw: &raw::Inbound, around: usize) -> Option<Senders> {
        let Located { value, place } = self.need(&raw.token, around, "token")?;
        let OrWord::Value(raw::Token::Secret(at)) = value else {
            return Some(Senders::Anybody);
        };
        let Located { value: raw::TokenKey { name, key }, place } = self.need(at, *place, "secret")?;
        let Located { value: Scalar(HolderName(name)), .. } = self.need(name, *place, "name")?;
        let key = get(key).map_or_else(|| TOKEN_KEY.into(), |Scalar(DataKey(key))| Arc::clone(key));
        Some(Senders::Token(ConfigValue { holder: Holder::Secret, name: Arc::clone(name), key, tenant: None }))
    }

    fn body_size(&mut self, field: &MaybeLeaf<Bytes>) -> u64 {
        let Some(Located { value: Scalar(Bytes(size)), place }) = located(field) else {
            return 64 << 10;
        };
        if !(1..=LARGEST_BODY).contains(size) {
            let (found, most) = (Bytes(*size), Bytes(LARGEST_BODY));
            self.fault(*place, format!("found {found} for a body; expected 1 to {most}"));
        }
        *size
    }
}

#[expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]
fn body_form(field: &Maybe<raw::BodyForm>) -> BodyForm {
    match get(field) {
        None | Some(raw::BodyForm::Text) => BodyForm::Text,
        Some(raw::BodyForm::Base64) => BodyForm::Base64,
    }
}
