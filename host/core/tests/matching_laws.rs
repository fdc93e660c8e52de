//! What holds for comparisons by managed fields whatever the object.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use capstan_core::budget::Budget;
use capstan_core::dependent::diff;
use capstan_core::dependent::managed_fields::{Comparison, Part, compare};
use capstan_core::guest::MatchResult;
use capstan_core::manifest::GenericMatching;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};

/// A value that we have applied, as all three sides have it.
#[derive(Clone, Debug)]
struct Applied {
    /// What we want.
    desired: Value,
    /// What the API server has: what we want, and what others added where that is possible.
    actual: Value,
    /// The fields recorded as ours.
    fields: Value,
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from)
    ]
}

/// Anything that is owned as a whole.
fn whole() -> impl Strategy<Value = Applied> {
    let value = scalar().prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    value.prop_map(|value| Applied { desired: value.clone(), actual: value, fields: json!({}) })
}

/// A set of texts, some of them ours.
fn set() -> impl Strategy<Value = Applied> {
    let members = prop::collection::btree_map("[a-f]", any::<bool>(), 1..6);
    members.prop_map(|members| {
        let ours: Vec<&str> = members.iter().filter(|(_, ours)| **ours).map(|(name, _)| name.as_str()).collect();
        let recorded = ours.iter().map(|name| (format!("v:{}", json!(name)), json!({})));
        let mut fields: Map<String, Value> = recorded.collect();
        if fields.is_empty() {
            fields.insert(".".to_owned(), json!({}));
        }
        let all: Vec<&str> = members.keys().map(String::as_str).collect();
        Applied { desired: json!(ours), actual: json!(all), fields: Value::Object(fields) }
    })
}

/// A map that is merged; others own some of its fields.
fn granular(inner: impl Strategy<Value = Applied> + 'static) -> impl Strategy<Value = Applied> {
    let ours = prop::collection::btree_map("[a-d]", inner, 1..4);
    let theirs = prop::collection::btree_map("[w-z]", scalar(), 0..3);
    (ours, theirs).prop_map(|(ours, theirs)| {
        let (mut desired, mut fields) = (Map::new(), Map::new());
        let mut actual: Map<String, Value> = theirs.into_iter().collect();
        for (name, value) in ours {
            fields.insert(format!("f:{name}"), value.fields);
            desired.insert(name.clone(), value.desired);
            actual.insert(name, value.actual);
        }
        Applied { desired: desired.into(), actual: actual.into(), fields: fields.into() }
    })
}

/// A list of maps with the key `id`; others own some of its elements.
fn keyed(inner: impl Strategy<Value = Applied> + 'static) -> impl Strategy<Value = Applied> {
    let elements = prop::collection::btree_map(0..20_u8, prop::option::of(granular(inner)), 1..5);
    (elements, any::<bool>()).prop_map(|(elements, backwards)| {
        let mut elements: Vec<_> = elements.into_iter().collect();
        if backwards {
            elements.reverse();
        }
        let (mut desired, mut actual, mut fields) = (Vec::new(), Vec::new(), Map::new());
        for (id, element) in elements {
            let Some(mut element) = element else {
                actual.push(json!({"id": id, "theirs": true}));
                continue;
            };
            element.desired["id"] = json!(id);
            element.actual["id"] = json!(id);
            element.fields["f:id"] = json!({});
            element.fields["."] = json!({});
            desired.push(element.desired);
            actual.push(element.actual);
            fields.insert(format!("k:{}", json!({"id": id})), element.fields);
        }
        if fields.is_empty() {
            fields.insert(".".to_owned(), json!({}));
        }
        Applied { desired: desired.into(), actual: actual.into(), fields: fields.into() }
    })
}

fn applied() -> impl Strategy<Value = Applied> {
    let value = prop_oneof![whole(), set()].boxed();
    let value = value.prop_recursive(4, 40, 4, |inner| prop_oneof![granular(inner.clone()), keyed(inner)]);
    granular(value).prop_map(|Applied { desired, actual, fields }| {
        let object =
            |spec| json!({"apiVersion": "sample.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
        Applied { desired: object(desired), actual: object(actual), fields: json!({"f:spec": fields}) }
    })
}

impl Applied {
    fn verdict(&self) -> MatchResult {
        let fields = self.fields.to_string();
        let ignore: &[&str] = &[];
        let Self { desired, actual, .. } = self;
        compare(
            &Comparison { fields: Some(&fields), actual, desired, part: Part::Object, ignore },
            &mut Budget::of_run(),
        )
        .unwrap()
    }
}

/// Returns pointers to all scalars of the wanted `spec`.
fn leaves(value: &Value, pointer: String, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, format!("{pointer}/{name}"), into));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| leaves(value, format!("{pointer}/{index}"), into));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => into.push(pointer),
    }
}

fn other(value: &Value) -> Value {
    match value {
        Value::Bool(truth) => json!(!truth),
        Value::Number(number) => json!(number.as_i64().unwrap() + 100),
        Value::String(text) => json!(format!("{text}7")),
        Value::Null | Value::Array(_) | Value::Object(_) => panic!("no leaf: {value}"),
    }
}

proptest! {
    #[test]
    fn what_was_applied_matches_whatever_others_add(applied in applied()) {
        prop_assert_eq!(applied.verdict(), MatchResult::Matches);
    }

    #[test]
    fn changing_any_owned_value_differs_wherever_it_is_changed(applied in applied(), which in any::<Index>()) {
        let mut pointers = Vec::new();
        leaves(&applied.desired["spec"], "/spec".to_owned(), &mut pointers);
        prop_assume!(!pointers.is_empty());
        let pointer = &pointers[which.index(pointers.len())];
        let mut wanted = applied.clone();
        let value = wanted.desired.pointer_mut(pointer).unwrap();
        *value = other(value);
        prop_assert_ne!(wanted.verdict(), MatchResult::Matches, "{} changed", pointer);
    }

    #[test]
    fn what_is_pruned_to_ours_contains_what_is_wanted(applied in applied()) {
        // A match by managed fields is one by differences too, where lists are embedded in order.
        let verdict = diff::compare(&applied.actual, &applied.desired, &GenericMatching::default(), &mut Budget::of_run());
        prop_assert_eq!(verdict, MatchResult::Matches);
    }
}
