//! Decides the shape of a kind's objects: which parts are merged, and which are one whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map as Json, Value};

use crate::fields::{Step, field};

/// The shape of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Schema {
    /// Neither map nor list.
    Scalar(Scalar),
    /// A map.
    Map(Map),
    /// A list.
    List(List),
    /// The shape of the value itself: a map is merged, a list is one whole.
    Any,
}

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A truth value.
    Boolean,
    /// A whole number that is not kept if it is zero.
    Count,
    /// A truth value that is not kept if it is false.
    Flag,
    /// A number or a text.
    Either,
}

/// The shape of a map, with names that the kind gives, names that the object chooses, or both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map {
    /// Its named fields.
    pub(crate) fields: BTreeMap<String, Arc<Schema>>,
    /// All other fields; `None` if there may be none.
    pub(crate) rest: Option<Arc<Schema>>,
    /// True if it is one whole.
    pub(crate) atomic: bool,
    /// Fields that must be there.
    pub(crate) required: Vec<String>,
    /// Fields that are always there, with the values that they have if they are not set.
    pub(crate) always: BTreeMap<String, Value>,
    /// Fields that are kept though they are empty.
    pub(crate) kept: Vec<String>,
    /// The defaults of absent fields.
    pub(crate) defaults: BTreeMap<String, Value>,
}

/// The shape of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List {
    /// The shape of each item.
    pub(crate) items: Arc<Schema>,
    /// How items are told apart.
    pub(crate) kind: ListKind,
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ListKind {
    /// Not at all: the list is one whole.
    Atomic,
    /// By their values.
    Set,
    /// By these fields, each with its default.
    Keys(Vec<(String, Option<Value>)>),
}

static ANY: Schema = Schema::Any;
static SCALAR: Schema = Schema::Scalar(Scalar::Either);

impl Schema {
    /// Reads the short form of `kinds/*.json`: `"string"`, `{ "field": … }`, `{ "*": … }` for names that the object
    /// chooses, `"!": true` for one whole, `"^": { … }` for what is always there, `"field!"` for one that is kept
    /// though it is empty, `["set", …]`, `["keys:port,protocol=TCP", …]`, `["atomic", …]`.
    pub(crate) fn short(json: &Value) -> Self {
        match json {
            Value::String(word) => Self::word(word),
            Value::Array(list) => Self::short_list(list),
            Value::Object(map) => Self::short_map(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Any,
        }
    }

    fn word(word: &str) -> Self {
        match word {
            "string" => Self::Scalar(Scalar::Text),
            "integer" => Self::Scalar(Scalar::Integer),
            "number" => Self::Scalar(Scalar::Number),
            "boolean" => Self::Scalar(Scalar::Boolean),
            "count" => Self::Scalar(Scalar::Count),
            "flag" => Self::Scalar(Scalar::Flag),
            "scalar" => Self::Scalar(Scalar::Either),
            _ => Self::Any,
        }
    }

    fn short_list(list: &[Value]) -> Self {
        let kind = list.first().and_then(Value::as_str).unwrap_or("atomic");
        let items = Arc::new(list.get(1).map_or(Self::Any, Self::short));
        let kind = match kind.strip_prefix("keys:") {
            Some(keys) => ListKind::Keys(keys.split(',').map(key).collect()),
            None if kind == "set" => ListKind::Set,
            None => ListKind::Atomic,
        };
        Self::List(List { items, kind })
    }

    fn short_map(json: &Json<String, Value>) -> Self {
        let (mut map, mut rest) = (Map::default(), None);
        for (name, schema) in json {
            match name.as_str() {
                "!" => map.atomic = true,
                "^" => map.always.extend(schema.as_object().cloned().into_iter().flatten()),
                "*" => rest = Some(Arc::new(Self::short(schema))),
                _ => {
                    let kept = name.strip_suffix('!');
                    map.kept.extend(kept.map(str::to_owned));
                    let name = kept.unwrap_or(name).to_owned();
                    map.fields.insert(name, Arc::new(Self::short(schema)));
                }
            }
        }
        map.rest = rest;
        Self::Map(map)
    }

    /// Reads an `OpenAPI` schema, as a `CustomResourceDefinition` has it.
    pub(crate) fn open_api(json: &Value) -> Self {
        let flag = |name: &str| json.get(name) == Some(&Value::Bool(true));
        let text = |name: &str| json.get(name).and_then(Value::as_str);
        if flag("x-kubernetes-int-or-string") {
            return Self::Scalar(Scalar::Either);
        }
        match text("type") {
            Some("object") => Self::open_api_map(json, flag("x-kubernetes-preserve-unknown-fields")),
            Some("array") => {
                let items = json.get("items").map_or(Self::Any, Self::open_api);
                let keys = json.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                let default = |key: &str| json.pointer(&format!("/items/properties/{key}/default")).cloned();
                let kind = match text("x-kubernetes-list-type") {
                    Some("set") => ListKind::Set,
                    Some("map") => ListKind::Keys(keys.map(|key| (key.to_owned(), default(key))).collect()),
                    _ => ListKind::Atomic,
                };
                Self::List(List { items: Arc::new(items), kind })
            }
            Some(word) => Self::word(word),
            None => Self::Any,
        }
    }

    fn open_api_map(json: &Value, unknown: bool) -> Self {
        let properties = json.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flatten();
        let fields = properties.clone().map(|(name, schema)| (name.clone(), Arc::new(Self::open_api(schema))));
        let defaults = properties.filter_map(|(name, schema)| Some((name.clone(), schema.get("default")?.clone())));
        let required = json.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let rest = match json.get("additionalProperties") {
            Some(schema @ Value::Object(_)) => Some(Self::open_api(schema)),
            _ => unknown.then_some(Self::Any),
        };
        Self::Map(Map {
            fields: fields.collect(),
            rest: rest.map(Arc::new),
            atomic: json.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            required: required.map(str::to_owned).collect(),
            always: BTreeMap::new(),
            kept: Vec::new(),
            defaults: defaults.collect(),
        })
    }

    /// Returns the shape of a value of this schema; the value's own where the schema leaves it open.
    pub(crate) fn shape(&self, value: &Value) -> Shape<'_> {
        match (self, value) {
            (Self::Scalar(_), _) | (Self::Any, Value::Bool(_) | Value::Number(_) | Value::String(_)) => Shape::Scalar,
            (Self::Map(map), _) => Shape::Map(Some(map)),
            (Self::List(list), _) => Shape::List(Some(list)),
            (Self::Any, Value::Object(_) | Value::Null) => Shape::Map(None),
            (Self::Any, Value::Array(_)) => Shape::List(None),
        }
    }
}

/// The shape of a value, with `None` where its schema says nothing about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape<'a> {
    /// Neither map nor list.
    Scalar,
    /// A map; merged if the schema says nothing about it.
    Map(Option<&'a Map>),
    /// A list; one whole if the schema says nothing about it.
    List(Option<&'a List>),
}

impl Map {
    /// Returns the shape of a field; `None` if there may be no such field.
    pub(crate) fn field(&self, name: &str) -> Option<&Schema> {
        let named = self.fields.get(name).map(AsRef::as_ref);
        named.or(self.rest.as_deref())
    }

    /// Returns true if the kind gives this name.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }
}

/// Returns the shape of a field of a map, whose shape may not be known.
pub(crate) fn field_of<'a>(map: Option<&'a Map>, name: &str) -> &'a Schema {
    map.and_then(|map| map.field(name)).unwrap_or(&ANY)
}

impl List {
    /// Returns the step to an item; `None` if it has none of the keys.
    pub(crate) fn step(&self, item: &Value) -> Option<Step> {
        match &self.kind {
            ListKind::Atomic => None,
            ListKind::Set => Some(format!("v:{item}")),
            ListKind::Keys(keys) => {
                let given = keys.iter().filter_map(|(key, default)| {
                    let value = item.get(key).or(default.as_ref())?;
                    Some((key.clone(), value.clone()))
                });
                // In the order of their names, as `fieldsV1` has them.
                let given: BTreeMap<String, Value> = given.collect();
                let text = serde_json::to_string(&given).ok()?;
                (!given.is_empty()).then(|| format!("k:{text}"))
            }
        }
    }
}

/// Returns the shape of what is below a step.
pub(crate) fn below<'a>(schema: &'a Schema, step: &str) -> &'a Schema {
    match (schema, step.split_once(':')) {
        (Schema::Map(map), Some(("f", name))) => map.field(name).unwrap_or(&ANY),
        (Schema::List(list), Some(("k", _))) => &list.items,
        (Schema::Any, _) => &ANY,
        (Schema::Scalar(_) | Schema::Map(_) | Schema::List(_), _) => &SCALAR,
    }
}

/// Returns true if a step leads to a field that the kind names.
pub(crate) fn is_named(schema: &Schema, step: &Step) -> bool {
    match schema {
        Schema::Map(map) => map.fields.keys().any(|name| field(name) == *step),
        Schema::Scalar(_) | Schema::List(_) | Schema::Any => false,
    }
}

fn key(text: &str) -> (String, Option<Value>) {
    match text.split_once('=') {
        Some((key, default)) => (key.to_owned(), Some(default.into())),
        None => (text.to_owned(), None),
    }
}
