//! Definitions that are made of types (`capstan crd`): the API server takes each form that the types of the four languages come to.

use capstan_core::schema::typed;
use cluster::wait;
use scenarios::{LATER, Place};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns what an SDK says of a spec with all of these forms: references, enumerations with texts, what may be null, variants by a tag, integers or
/// texts, maps, sets, lists by keys, any JSON, rules in CEL, and limits as each draft has them.
fn said(group: &str) -> Value {
    let color =
        json!({ "oneOf": [{ "const": "red", "description": "As roses." }, { "type": "string", "enum": ["blue"] }] });
    let file = json!({ "type": "object", "required": ["by"], "properties": { "by": { "const": "file" }, "path": { "type": "string" } } });
    let url = json!({ "type": "object", "required": ["by"], "properties": { "by": { "const": "url" }, "url": { "type": "string" } } });
    let spec = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["size", "color", "none"],
        "properties": {
            "size": { "type": "integer", "format": "uint16", "minimum": 0, "exclusiveMaximum": 9 },
            "color": { "$ref": "#/$defs/Color", "default": "red" },
            "none": { "anyOf": [{ "$ref": "#/$defs/Part" }, { "type": "null" }] },
            "optional": { "type": ["string", "null"], "default": null },
            "from": { "oneOf": [file, url] },
            "port": { "type": ["integer", "string"] },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "tags": { "type": "array", "uniqueItems": true, "items": { "type": "string" } },
            "any": {},
            "nothing": { "type": "object" },
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": { "allOf": [{ "$ref": "#/$defs/Part" }], "title": "Part" },
            },
        },
        "x-kubernetes-validations": [{ "rule": "self.size < 8 || has(self.port)", "message": "large ones need a port" }],
    });
    let part = json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } });
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "Typed",
        "plural": "typeds",
        "shortNames": ["tp"],
        "conditions": true,
        "columns": [{ "name": "Size", "jsonPath": ".spec.size" }, { "name": "Ready", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status" }],
        "selectableFields": [".spec.size"],
        "scale": { "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size" },
        "schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Typed",
            "type": "object",
            "required": ["metadata", "spec"],
            "properties": {
                "metadata": {},
                "spec": spec,
                "status": { "type": ["object", "null"], "required": ["size"], "properties": { "size": { "type": "integer" } } },
            },
            "$defs": { "Color": color, "Part": part },
        },
    })
}

#[test]
fn the_api_server_takes_what_types_come_to_and_checks_what_they_say() {
    let place = Place::new("typed");
    let api = place.cluster.api();
    let group = format!("{}.test.capstan.dev", place.namespace.name());
    let [definition] = &typed(&said(&group).to_string(), str::to_owned).unwrap()[..] else { panic!("one definition") };
    api.create(DEFINITIONS, definition).unwrap();
    let path = place.namespace.path(&format!("{group}/v1"), "typeds");
    wait::until_ok(LATER, &path, || api.get(&path)).unwrap();
    let create = |name: &str, spec: Value| {
        let object =
            json!({ "apiVersion": format!("{group}/v1"), "kind": "Typed", "metadata": { "name": name }, "spec": spec });
        api.create(&path, &object).map_err(|error| error.to_string())
    };
    let whole = json!({
        "size": 7, "none": null, "optional": null, "from": { "by": "url", "url": "a" }, "port": "http", "labels": { "a": "b" }, "tags": ["x"],
        "any": [1, "a"], "nothing": { "a": 1 }, "parts": [{ "name": "p" }],
    });
    let made = create("whole", whole).unwrap();
    assert_eq!((&made["spec"]["color"], &made["spec"]["none"]), (&json!("red"), &Value::Null));
    let wrong = [
        ("size", json!(9), "should be less than 9"),
        ("size", json!(8), "large ones need a port"),
        ("color", json!("green"), "Unsupported value: \"green\""),
        ("from", json!({ "by": "mail" }), "Unsupported value: \"mail\""),
        ("tags", json!(["x", "x"]), "Duplicate value"),
        ("parts", json!([{}]), "spec.parts[0].name: Required value"),
    ];
    for (field, value, expected) in wrong {
        let mut spec = json!({ "size": 1, "none": null });
        spec[field] = value;
        let refused = create("wrong", spec).unwrap_err();
        assert!(refused.contains(expected), "{field}: {refused}");
    }
    api.delete(&format!("{DEFINITIONS}/typeds.{group}")).unwrap();
}
