//! The tables of `docs/manifest.md`, made from the JSON schema.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

/// Returns one section for each kind of mapping, in the order in which they are met.
pub(crate) fn tables(schema: &Value) -> String {
    let mut text = String::new();
    let (mut waiting, mut seen) = (vec!["Document".to_owned()], BTreeSet::new());
    while let Some(name) = waiting.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let section = schema.get("$defs").unwrap().get(&name).unwrap_or(schema);
        let mut referred = Vec::new();
        references(if name == "Document" { &schema["properties"] } else { section }, &mut referred);
        writeln!(text, "### {}\n\n{}\n", words(&name), one_line(section)).unwrap();
        let users = users(schema, &name);
        if !users.is_empty() {
            writeln!(text, "It is {}.\n", users.join(", ")).unwrap();
        }
        text.push_str(&if section.get("oneOf").is_some() { forms(section) } else { fields(section) });
        text.push('\n');
        waiting.extend(referred.into_iter().rev());
    }
    text
}

/// Returns the table of a mapping with fields: first those that are required.
fn fields(section: &Value) -> String {
    let required = |name: &str| section["required"].as_array().into_iter().flatten().any(|field| field == name);
    let mut fields: Vec<(&String, &Value)> = section["properties"].as_object().unwrap().iter().collect();
    fields.sort_by_key(|(name, _)| (!required(name), *name));
    let mut text =
        "| field | type | default | meaning | [rules](rules.md) |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for (name, field) in fields {
        let default = match field.get("default") {
            Some(default) => format!("`{}`", default.to_string().replace('"', "").replace(',', ", ")),
            None if required(name) => "*required*".to_owned(),
            None => String::new(),
        };
        let (meaning, rules) = meaning(field);
        writeln!(text, "| `{name}` | {} | {default} | {meaning} | {rules} |", kind(field)).unwrap();
    }
    text
}

/// Returns the table of a choice between forms.
fn forms(section: &Value) -> String {
    let mut text = "| form | meaning | [rules](rules.md) |\n| --- | --- | --- |\n".to_owned();
    for form in section["oneOf"].as_array().unwrap() {
        let shape = match form["properties"].as_object().and_then(|properties| properties.iter().next()) {
            Some((name, value)) => format!("`{name}:` {}", kind(value)),
            None => format!("`{}`", form["const"].as_str().unwrap()),
        };
        let (meaning, rules) = meaning(form);
        writeln!(text, "| {shape} | {meaning} | {rules} |").unwrap();
    }
    text
}

/// Says of what a field of this schema is.
fn kind(schema: &Value) -> String {
    if let Some(reference) = reference(schema) {
        return format!(
            "[{}](#{})",
            words(&reference).to_lowercase(),
            words(&reference).to_lowercase().replace(' ', "-")
        );
    }
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    let choices =
        |list: &Value| list.as_array().unwrap().iter().filter(|choice| !is_null(choice)).cloned().collect::<Vec<_>>();
    if schema.get("enum").is_some() {
        let words: Vec<String> =
            choices(&schema["enum"]).iter().map(|word| format!("`{}`", word.as_str().unwrap())).collect();
        return words.join(", ");
    }
    if let Some(word) = schema["const"].as_str() {
        return format!("`{word}`");
    }
    if schema.get("anyOf").is_some() {
        return choices(&schema["anyOf"]).iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap() {
        "array" if schema["items"]["title"].is_string() => {
            format!("list of {}s", kind(&schema["items"]))
        }
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("by name: {}", kind(&schema["additionalProperties"]))
        }
        "object" => "mapping".to_owned(),
        "string" => "text".to_owned(),
        "boolean" => "`true`, `false`".to_owned(),
        other => panic!("a field of type {other}"),
    }
}

fn is_null(schema: &Value) -> bool {
    schema.is_null() || schema["type"] == "null"
}

fn reference(schema: &Value) -> Option<String> {
    schema["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/")).map(str::to_owned)
}

/// Collects the sections that a schema refers to.
fn references(schema: &Value, found: &mut Vec<String>) {
    found.extend(reference(schema));
    match schema {
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| references(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns where a section is used: "`retry` of a controller".
fn users(schema: &Value, name: &str) -> Vec<String> {
    let sections = schema["$defs"].as_object().unwrap().iter().map(|(name, section)| (name.as_str(), section));
    let mut users = Vec::new();
    for (user, section) in [("Document", schema)].into_iter().chain(sections) {
        let forms = section["oneOf"].as_array().into_iter().flatten();
        let properties = forms.chain([section]).filter_map(|form| form["properties"].as_object()).flatten();
        for (field, value) in properties {
            let mut found = Vec::new();
            references(value, &mut found);
            if found.iter().any(|found| found == name) {
                let link = words(user).to_lowercase();
                users.push(format!("`{field}` of [{link}](#{})", link.replace(' ', "-")));
            }
        }
    }
    users
}

/// Cuts a description into its meaning and the rules that it ends with.
fn meaning(schema: &Value) -> (String, String) {
    let text = one_line(schema);
    let cut = text.trim_end_matches('.').strip_suffix("`)").and_then(|text| text.rsplit_once(" (`"));
    let Some((meaning, rules)) = cut else {
        return (text, String::new());
    };
    (format!("{}.", meaning.trim_end_matches('.')), rules.replace("`, `", ", "))
}

fn one_line(schema: &Value) -> String {
    schema["description"].as_str().unwrap().replace('\n', " ")
}

/// Cuts a name of a type into words: "Rate limit".
fn words(name: &str) -> String {
    let mut words = String::new();
    for (i, c) in name.chars().enumerate() {
        if i > 0 && c.is_uppercase() {
            words.push(' ');
        }
        words.extend(if i == 0 { c.to_uppercase().collect::<Vec<_>>() } else { c.to_lowercase().collect() });
    }
    words
}
