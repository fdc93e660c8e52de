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
        return if schema.as_bool() == Some(true) { Ok(()) } else { Err(format!("{path}: nothing is allowed here")) };
    };
    keywords.iter().try_for_each(|(keyword, argument)| keyword_holds(root, keyword, argument, value, schema, path))
}

fn keyword_holds(
    root: &Value,
    keyword: &str,
    argument: &Value,
    value: &Value,
    schema: &Value,
    path: &str,
) -> Result<(), String> {
    let fits = |schema: &Value| check(root, schema, value, path).is_ok();
    let number = || argument.as_f64().unwrap();
    let length = |value: Option<usize>, right: fn(f64, f64) -> bool| {
        value.is_none_or(|length| right(f64::from(u32::try_from(length).unwrap()), number()))
    };
    let holds = match keyword {
        "$schema" | "$defs" | "title" | "description" | "default" => true,
        "$ref" => return check(root, resolve(root, schema), value, path),
        "type" => match argument {
            Value::Array(names) => names.iter().any(|name| is_type(value, name.as_str().unwrap())),
            name => is_type(value, name.as_str().unwrap()),
        },
        "enum" => argument.as_array().unwrap().contains(value),
        "const" => argument == value,
        "anyOf" => argument.as_array().unwrap().iter().any(fits),
        "oneOf" => argument.as_array().unwrap().iter().filter(|schema| fits(schema)).count() == 1,
        "minimum" => value.as_f64().is_none_or(|value| value >= number()),
        "maximum" => value.as_f64().is_none_or(|value| value <= number()),
        "minLength" => length(value.as_str().map(|text| text.chars().count()), |length, bound| length >= bound),
        "maxLength" => length(value.as_str().map(|text| text.chars().count()), |length, bound| length <= bound),
        "minItems" => length(value.as_array().map(Vec::len), |length, bound| length >= bound),
        "minProperties" => length(value.as_object().map(serde_json::Map::len), |length, bound| length >= bound),
        "pattern" => value.as_str().is_none_or(|text| Regex::new(argument.as_str().unwrap()).unwrap().is_match(text)),
        "required" => {
            let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
            !value.is_object() || argument.as_array().unwrap().iter().all(has)
        }
        "items" => {
            let items = value.as_array().into_iter().flatten().enumerate();
            return items.into_iter().try_for_each(|(i, item)| check(root, argument, item, &format!("{path}/{i}")));
        }
        "propertyNames" => {
            let mut names = value.as_object().into_iter().flatten().map(|(name, _)| Value::from(name.as_str()));
            return names.try_for_each(|name| check(root, argument, &name, path));
        }
        "properties" => {
            let mut entries = value.as_object().into_iter().flatten();
            return entries.try_for_each(|(name, value)| match argument.get(name) {
                Some(schema) => check(root, schema, value, &format!("{path}/{name}")),
                None => Ok(()),
            });
        }
        "additionalProperties" => {
            let known = |name: &str| schema.get("properties").is_some_and(|properties| properties.get(name).is_some());
            let mut others = value.as_object().into_iter().flatten().filter(|(name, _)| !known(name));
            return others.try_for_each(|(name, value)| check(root, argument, value, &format!("{path}/{name}")));
        }
        other => panic!("the schema uses `{other}`, which is not looked at here"),
    };
    if holds { Ok(()) } else { Err(format!("{path}: {value} is not as `{keyword}: {argument}` says")) }
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
