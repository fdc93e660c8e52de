//! As much of JSON Schema as the manifest's schema uses; a keyword beyond that is a failure, so that none is passed over.

use regex::Regex;
use serde_json::Value;

/// Returns what is wrong with `value`, first by its path.
pub(crate) fn validate(root: &Value, value: &Value) -> Result<(), String> {
    check(root, root, value, "")
}

/// Returns the schema that `schema` refers to, or itself.
pub(crate) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    }
}

fn check(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else {
        let anything = schema.as_bool() == Some(true);
        return if anything { Ok(()) } else { Err(format!("{path}: nothing is allowed here")) };
    };
    for (keyword, argument) in keywords {
        let fits = |schema: &Value| check(root, schema, value, path).is_ok();
        let holds = match keyword.as_str() {
            "$schema" | "$defs" | "definitions" | "$comment" | "title" | "description" | "default" => true,
            "anyOf" => argument.as_array().unwrap().iter().any(fits),
            "oneOf" => argument.as_array().unwrap().iter().filter(|schema| fits(schema)).count() == 1,
            "$ref" | "items" | "propertyNames" | "properties" | "additionalProperties" => {
                for (schema, value, name) in below(root, schema, keyword, value) {
                    check(root, schema, &value, &format!("{path}{name}"))?;
                }
                true
            }
            keyword => is_as(keyword, argument, value),
        };
        if !holds {
            return Err(format!("{path}: {value} is not as `{keyword}: {argument}` says"));
        }
    }
    Ok(())
}

/// Returns what a keyword wants other schemas to hold for, with those schemas and the steps to it.
fn below<'a>(root: &'a Value, schema: &'a Value, keyword: &str, value: &Value) -> Vec<(&'a Value, Value, String)> {
    let argument = &schema[keyword];
    let fields = value.as_object().into_iter().flatten();
    let known = |name: &str| schema["properties"].get(name);
    let step = |name: &str| format!("/{name}");
    match keyword {
        "$ref" => vec![(resolve(root, schema), value.clone(), String::new())],
        "items" => {
            let items = value.as_array().into_iter().flatten().enumerate();
            items.map(|(i, item)| (argument, item.clone(), format!("/{i}"))).collect()
        }
        "propertyNames" => fields.map(|(name, _)| (argument, name.as_str().into(), step(name))).collect(),
        "properties" => fields.filter_map(|(name, value)| Some((known(name)?, value.clone(), step(name)))).collect(),
        _ => fields
            .filter(|(name, _)| known(name).is_none())
            .map(|(name, value)| (argument, value.clone(), step(name)))
            .collect(),
    }
}

/// Whether a keyword that concerns the value alone holds.
fn is_as(keyword: &str, argument: &Value, value: &Value) -> bool {
    let bound = || argument.as_f64().unwrap();
    let length = |length: usize| f64::from(u32::try_from(length).unwrap());
    let characters = value.as_str().map(|text| length(text.chars().count()));
    match keyword {
        "type" => match argument.as_array() {
            Some(names) => names.iter().any(|name| is_type(value, name.as_str().unwrap())),
            None => is_type(value, argument.as_str().unwrap()),
        },
        "enum" => argument.as_array().unwrap().contains(value),
        "const" => argument == value,
        "minimum" => value.as_f64().is_none_or(|value| value >= bound()),
        "maximum" => value.as_f64().is_none_or(|value| value <= bound()),
        "minLength" => characters.is_none_or(|length| length >= bound()),
        "maxLength" => characters.is_none_or(|length| length <= bound()),
        "minItems" => value.as_array().is_none_or(|items| length(items.len()) >= bound()),
        "maxItems" => value.as_array().is_none_or(|items| length(items.len()) <= bound()),
        "minProperties" => value.as_object().is_none_or(|fields| length(fields.len()) >= bound()),
        "maxProperties" => value.as_object().is_none_or(|fields| length(fields.len()) <= bound()),
        "pattern" => {
            let pattern = Regex::new(argument.as_str().unwrap()).unwrap();
            value.as_str().is_none_or(|text| pattern.is_match(text))
        }
        "required" => {
            let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
            !value.is_object() || argument.as_array().unwrap().iter().all(has)
        }
        other => panic!("the schema uses `{other}`, which is not looked at here"),
    }
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the schema has a type `{other}`"),
    }
}
