//! Values of `config` that Secrets and ConfigMaps have: that each is there once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::names::{DataKey, HolderName};
use super::super::raw::{self, Maybe};
use super::super::{ConfigValue, Holder};
use super::{Check, get, located};
use crate::yaml::{Located, Scalar, Slot};

/// The most values of one plugin: each is at most 64 KiB, and is read again and again.
const MOST_VALUES: usize = 32;

impl Check<'_> {
    /// Returns where the values are that `config` does not have itself, by their names.
    pub(super) fn config_from(
        &mut self,
        field: &Maybe<raw::ConfigFrom>,
        config: &Value,
    ) -> BTreeMap<Arc<str>, ConfigValue> {
        let mut values = BTreeMap::new();
        let Some(Located { value: entries, place }) = located(field) else {
            return values;
        };
        if !self.few(*place, (entries.0.len(), "values"), MOST_VALUES, "") {
            return values;
        }
        for (name, value) in &entries.0 {
            let Some(Located { value: Scalar(DataKey(name)), place }) = name.read() else {
                continue;
            };
            if config.get(&**name).is_some() {
                self.fault(*place, format!("found `{name}` here and in `config`; expected it in one of them"));
            }
            if matches!(value, Slot::Missing) {
                self.fault(*place, "found nothing; expected `secret` or `configMap`");
            }
            values.extend(value.read().and_then(|value| Some((Arc::clone(name), self.config_value(value, name)?))));
        }
        values
    }

    fn config_value(&mut self, value: &Located<raw::ConfigValue>, as_key: &Arc<str>) -> Option<ConfigValue> {
        let (holder, what, at) = match &value.value {
            raw::ConfigValue::Secret(at) => (Holder::Secret, "secret", at),
            raw::ConfigValue::ConfigMap(at) => (Holder::ConfigMap, "configMap", at),
        };
        let Located { value: raw::ValueKey { name, key }, place } = self.need(at, value.place, what)?;
        let Located { value: Scalar(HolderName(name)), .. } = self.need(name, *place, "name")?;
        let key = get(key).map_or_else(|| Arc::clone(as_key), |Scalar(DataKey(key))| Arc::clone(key));
        Some(ConfigValue { holder, name: Arc::clone(name), key, tenant: None })
    }
}
