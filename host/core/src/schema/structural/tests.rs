//! What the types of four languages come to, place by place.

use super::*;

/// Returns what becomes of a field, or what is wrong with it.
fn field(said: &Value) -> Result<Value, String> {
    let named = json!({ "type": "object", "properties": { "size": { "type": "integer" } }, "required": ["size"] });
    let again = json!({ "type": "object", "properties": { "next": { "$ref": "#/$defs/Again" } } });
    let definitions = json!({ "Named": named, "Again": again, "A<b>": { "type": "string" } });
    let said = json!({ "type": "object", "properties": { "a": said }, "required": ["a"], "$defs": definitions });
    let made = structural(&said).map_err(|misfit| misfit.to_string())?;
    Ok(made["properties"]["a"].clone())
}

#[test]
fn types_come_to_what_the_api_server_takes() {
    let named = json!({ "type": "object", "properties": { "size": { "type": "integer" } }, "required": ["size"] });
    let mut named_null = named.clone();
    named_null["nullable"] = json!(true);
    let table = [
        // What is optional.
        (json!({ "type": ["string", "null"], "default": null }), json!({ "type": "string", "nullable": true })),
        (json!({ "anyOf": [{ "$ref": "#/$defs/Named" }, { "type": "null" }] }), named_null.clone()),
        (
            json!({ "properties": { "b": { "enum": ["x", null] } } }),
            json!({ "type": "object", "properties": { "b": { "type": "string", "enum": ["x"] } } }),
        ),
        // References.
        (json!({ "$ref": "#/$defs/A%3Cb%3E", "description": "x" }), json!({ "type": "string", "description": "x" })),
        (json!({ "allOf": [{ "$ref": "#/$defs/Named" }], "title": "N", "nullable": true }), named_null),
        // Words.
        (json!({ "const": 1 }), json!({ "type": "integer", "enum": [1] })),
        (
            json!({ "description": "W.", "oneOf": [{ "const": "a", "description": "A." }, { "type": "string", "enum": ["b", "c"] }] }),
            json!({ "type": "string", "enum": ["a", "b", "c"], "description": "W.\n\na: A." }),
        ),
        // Anything.
        (json!(true), json!({ ANY: true })),
        (json!({ "description": "x" }), json!({ ANY: true, "description": "x" })),
        (json!({ "type": "object" }), json!({ "type": "object", ANY: true })),
        (json!({ "type": "object", "additionalProperties": true }), json!({ "type": "object", ANY: true })),
        (json!({ "type": "object", "additionalProperties": {} }), json!({ "type": "object", ANY: true })),
        (json!({ "type": "array" }), json!({ "type": "array", "items": { ANY: true } })),
        (
            json!({ "type": "object", "properties": {}, "additionalProperties": false }),
            json!({ "type": "object", "properties": {} }),
        ),
        (
            json!({ "additionalProperties": { "type": "string" } }),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        ),
        // Numbers.
        (json!({ "type": ["integer", "string"] }), json!({ EITHER: true })),
        // `IntOrString` of kubernetes-types.
        (json!({ "type": ["number", "string"] }), json!({ EITHER: true })),
        (json!({ "anyOf": [{ "type": "number" }, { "type": "string" }] }), json!({ EITHER: true })),
        (json!({ "anyOf": [{ "type": "string" }, { "type": "integer", "format": "int32" }] }), json!({ EITHER: true })),
        (
            json!({ "type": "integer", "format": "uint8", "minimum": 0, "exclusiveMaximum": 9 }),
            json!({ "type": "integer", "format": "int32", "minimum": 0, "maximum": 9, "exclusiveMaximum": true }),
        ),
        (json!({ "type": "string", "format": "partial-date-time" }), json!({ "type": "string" })),
        (
            json!({ "properties": { "b": { "type": "string", "default": "x" }, "c": { "type": "string" } }, "required": ["b", "c"] }),
            json!({ "type": "object", "properties": { "b": { "type": "string", "default": "x" }, "c": { "type": "string" } }, "required": ["c"] }),
        ),
        (
            json!({ "properties": { "b": { "type": ["string", "null"] }, "c": { "type": ["string", "null"] } }, "required": ["c"] }),
            json!({ "type": "object", "properties": { "b": { "type": "string" }, "c": { "type": "string", "nullable": true } }, "required": ["c"] }),
        ),
        // Sets.
        (
            json!({ "type": "array", "uniqueItems": true, "items": { "type": "string" } }),
            json!({ "type": "array", LIST: "set", "items": { "type": "string" } }),
        ),
    ];
    for (said, expected) in table {
        assert_eq!(field(&said), Ok(expected), "{said}");
    }
}

#[test]
fn the_fields_of_variants_are_those_of_the_object_and_which_go_together_is_said_beside() {
    let variant = |tag: &str, name: &str| json!({ "type": "object", "properties": { "by": { "const": tag }, name: { "type": "string" } }, "required": ["by"] });
    let made = json!({
        "type": "object",
        "properties": { "by": { "type": "string", "enum": ["file", "url"] }, "path": { "type": "string" }, "url": { "type": "string" } },
        "oneOf": [
            { "properties": { "by": { "enum": ["file"] } }, "required": ["by"] },
            { "properties": { "by": { "enum": ["url"] } }, "required": ["by"] },
        ],
    });
    assert_eq!(field(&json!({ "oneOf": [variant("file", "path"), variant("url", "url")] })), Ok(made));
    let other = json!({ "type": "object", "properties": { "path": { "type": "integer" } } });
    let said = field(&json!({ "anyOf": [variant("file", "path"), other] })).unwrap_err();
    assert!(said.starts_with("a: `path` has several types"), "{said}");
}

#[test]
fn what_no_structural_schema_can_say_is_named_with_its_field() {
    for (said, expected) in [
        (json!({ "$ref": "#/$defs/Again" }), "a.next: the type `Again` contains itself"),
        (json!({ "$ref": "#/$defs/None" }), "a: `#/$defs/None` leads to nothing"),
        (json!({ "type": ["boolean", "string"] }), "a: found the type \"boolean or string\"; expected one"),
        (json!({ "anyOf": [{ "type": "string" }, { "type": "object" }] }), "a: this is object or string, and a field"),
        (json!({ "type": "array", "items": { "prefixItems": [] } }), "a[]: `prefixItems: []` is nothing"),
        (
            json!({ "properties": { "b": {} }, "additionalProperties": { "type": "string" } }),
            "a: these are fields beside",
        ),
        (json!({ "additionalProperties": { "type": "null" } }), "a.*: found the type \"null\"; expected one"),
        (json!({ "enum": ["x", null] }), "a: this is one of several constants or null"),
        (json!({ "items": { "enum": ["x", null] } }), "a[]: this is one of several constants or null"),
        (json!(false), "a: found the schema false; expected an object"),
    ] {
        let found = field(&said).unwrap_err();
        assert!(found.starts_with(expected), "{said}: {found}");
    }
}

#[test]
fn what_refers_to_more_and_more_ends() {
    let mut definitions = Map::new();
    for level in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/T{}", level + 1) });
        definitions.insert(format!("T{level}"), json!({ "type": "object", "properties": { "a": next, "b": next } }));
    }
    definitions.insert("T40".to_owned(), json!({ "type": "string" }));
    let said = json!({ "$ref": "#/$defs/T0", "$defs": definitions });
    assert!(structural(&said).unwrap_err().message.starts_with("this is too deep or too large"));
}
