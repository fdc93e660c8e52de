//! Decides which values of `config` are read for operators, and what a plugin is given of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::manifest::{ConfigValue, Controller, Operator, Plugin};

pub mod rounds;

/// A value that an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The operator.
    pub operator: Arc<str>,
    /// Where the value is.
    pub value: ConfigValue,
}

/// What is known of a value: its text, or why it is not given.
pub type Known = Result<Arc<str>, Arc<str>>;

/// The values of a plugin's `config` that Secrets and ConfigMaps have, by their names in it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<Arc<str>, Arc<str>>);

/// What a plugin is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// A value has not been read yet.
    Unread,
    /// A value is not given: which one, and why.
    Refused(Arc<str>),
    /// All values.
    All(Values),
}

/// Returns the values that operators ask for.
pub fn asked(operators: &[Operator]) -> BTreeSet<Asked> {
    let each = operators.iter().flat_map(|operator| {
        let values = operator.plugins.values().flat_map(Plugin::values);
        let tokens = operator.controllers.values().flat_map(tokens);
        values.chain(tokens).map(|value| Asked { operator: Arc::clone(&operator.name), value: value.clone() })
    });
    each.collect()
}

/// Returns where the tokens of a controller's inbound sources are (`IB-3`).
pub fn tokens(controller: &Controller) -> impl Iterator<Item = &ConfigValue> {
    controller.inbound.values().filter_map(|inbound| inbound.senders.token())
}

/// Returns what a plugin of an operator is given, where `known` is what is known of a value, if it has been read.
pub fn given(operator: &Arc<str>, plugin: &Plugin, known: impl Fn(&Asked) -> Option<Known>) -> Given {
    let mut values = BTreeMap::new();
    for (name, value) in &plugin.config_from {
        match known(&Asked { operator: Arc::clone(operator), value: value.clone() }) {
            None => return Given::Unread,
            Some(Err(why)) => return Given::Refused(format!("configFrom.{name}: {value}: {why}").into()),
            Some(Ok(text)) => values.insert(Arc::clone(name), text),
        };
    }
    Given::All(Values(values))
}

impl Given {
    /// Returns the values, if all are given.
    pub fn all(&self) -> Values {
        match self {
            Self::All(values) => values.clone(),
            Self::Unread | Self::Refused(_) => Values::default(),
        }
    }
}

impl Values {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `config` with these in it.
    pub fn within(&self, config: &Value) -> Value {
        let mut all = config.as_object().cloned().unwrap_or_default();
        all.extend(self.0.iter().map(|(name, text)| (name.to_string(), Value::from(&**text))));
        Value::Object(all)
    }
}

impl fmt::Debug for Values {
    /// Writes the names, and nothing that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::manifest;

    fn operator(from: &str) -> Operator {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: pages }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }}, config: {{ title: a }}, configFrom: {from} }} }}\n  controllers: {{ c: {{ plugin: p, primary: {{ apiVersion: v1, kind: ConfigMap }} }} }}\n"
        );
        manifest::parse(&text, Path::new("a")).unwrap().remove(0)
    }

    #[test]
    fn a_plugin_is_given_all_values_or_none_and_what_is_secret_is_never_printed() {
        // CV-1
        let operator =
            operator("{ password: { secret: { name: db } }, theme: { configMap: { name: looks, key: t } } }");
        let plugin = &operator.plugins["p"];
        let names = |asked: &Asked| format!("{} {} {}", asked.operator, asked.value, asked.value.key);
        let all: Vec<_> = asked(std::slice::from_ref(&operator)).iter().map(names).collect();
        assert_eq!(all, ["pages Secret db password", "pages ConfigMap looks t"]);
        let (text, refused) = (|text: &str| Some(Ok(text.into())), Some(Err("there is none".into())));
        for (db, looks, expected) in [
            (None, None, "Unread"),
            (text("hush"), None, "Unread"),
            (None, refused.clone(), "Unread"),
            (text("hush"), refused, r#"Refused("configFrom.theme: ConfigMap looks: there is none")"#),
            (text("hush"), text("dark"), r#"All({"password", "theme"})"#),
        ] {
            let known = |asked: &Asked| if &*asked.value.name == "db" { db.clone() } else { looks.clone() };
            let found = given(&operator.name, plugin, known);
            assert_eq!(format!("{found:?}"), expected);
            if let Given::All(values) = found {
                assert_eq!(values.within(&plugin.config), json!({ "title": "a", "password": "hush", "theme": "dark" }));
            }
        }
    }

    #[test]
    fn what_it_takes_to_pull_a_component_is_asked_for_and_is_no_setting_of_a_plugin() {
        // OC-3
        let text = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: pages }\nspec:\n  plugins: { p: { component: { oci: 'r.io/a:1', pullSecret: regcred, ca: { configMap: { name: authority } } } } }\n  controllers: { c: { plugin: p, primary: { apiVersion: v1, kind: ConfigMap } } }\n";
        let operator = manifest::parse(text, Path::new("a")).unwrap().remove(0);
        let names = |asked: &Asked| {
            format!("{} {:?} {} {}", asked.operator, asked.value.holder, asked.value.name, asked.value.key)
        };
        let all: Vec<_> = asked(std::slice::from_ref(&operator)).iter().map(names).collect();
        assert_eq!(all, ["pages ConfigMap authority ca.crt", "pages PullSecret regcred .dockerconfigjson"]);
        assert_eq!(given(&operator.name, &operator.plugins["p"], |_| None), Given::All(Values::default()));
    }

    #[test]
    fn the_tokens_of_inbound_sources_are_asked_for_and_are_no_settings_of_a_plugin() {
        // IB-3
        let text = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: pages }\nspec:\n  plugins: { p: { component: { path: p.wasm } } }\n  controllers: { c: { plugin: p, primary: { apiVersion: v1, kind: ConfigMap }, sources: { a: { inbound: { token: { secret: { name: hooks } } } }, b: { inbound: { token: { secret: { name: more, key: k } } } }, d: { inbound: { token: none } } } } }\n";
        let operator = manifest::parse(text, Path::new("a")).unwrap().remove(0);
        let names = |asked: &Asked| format!("{} {} {}", asked.operator, asked.value, asked.value.key);
        let all: Vec<_> = asked(std::slice::from_ref(&operator)).iter().map(names).collect();
        assert_eq!(all, ["pages Secret hooks token", "pages Secret more k"]);
        assert_eq!(given(&operator.name, &operator.plugins["p"], |_| None), Given::All(Values::default()));
    }
}
