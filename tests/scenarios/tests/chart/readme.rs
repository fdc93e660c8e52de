//! The chart's documentation: the table of values in its README derives from the comments in values.yaml, and the schema knows
//! every value.

use std::fmt::Write as _;

use super::*;

const BEGIN: &str = "<!-- values: written by `BLESS=1 cargo test -p scenarios --test scenarios values` -->\n";
const END: &str = "<!-- end of values -->";

/// A value, as values.yaml documents it.
struct Entry {
    /// Its name with those of what it is in, such as `image.tag`.
    name: String,
    description: String,
}

/// Reads the descriptions: comments that begin with `--`, up to the key that they are about.
fn entries(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (mut path, mut description) = (Vec::<(usize, String)>::new(), String::new());
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(comment) = content.strip_prefix('#') {
            let comment = comment.trim();
            if let Some(first) = comment.strip_prefix("-- ") {
                first.clone_into(&mut description);
            } else if !description.is_empty() {
                write!(description, " {comment}").unwrap();
            }
            continue;
        }
        let indent = line.len() - content.len();
        if let Some((key, _)) = content.split_once(':').filter(|(key, _)| !key.contains([' ', '-'])) {
            path.retain(|(deeper, _)| *deeper < indent);
            path.push((indent, key.to_owned()));
            if !description.is_empty() {
                let names: Vec<_> = path.iter().map(|(_, name)| name.as_str()).collect();
                entries.push(Entry { name: names.join("."), description: std::mem::take(&mut description) });
            }
        }
    }
    entries
}

fn values() -> (String, Value) {
    let text = fs::read_to_string(chart().join("values.yaml")).unwrap();
    let values = serde_yaml::from_str(&text).unwrap();
    (text, values)
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('.', "/"))
}

#[test]
fn the_readme_lists_the_values() {
    let (text, values) = values();
    let mut table = "| value | default | meaning |\n| --- | --- | --- |\n".to_owned();
    for Entry { name, description } in entries(&text) {
        let default = values.pointer(&pointer(&name)).unwrap();
        writeln!(table, "| `{name}` | `{default}` | {description} |").unwrap();
    }
    let path = chart().join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let table = format!("\n{table}\n");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
    } else {
        assert_eq!(found, table);
    }
}

/// Collects the values that no entry is about, neither by itself nor as a part of one.
fn undescribed(value: &Value, name: &str, known: &BTreeSet<String>, missing: &mut Vec<String>) {
    match value.as_object() {
        _ if known.contains(name) => {}
        Some(fields) if !fields.is_empty() => {
            for (field, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                undescribed(value, &format!("{name}{dot}{field}"), known, missing);
            }
        }
        _ => missing.push(name.to_owned()),
    }
}

/// Collects the names of all values that the schema knows.
fn schema_names(schema: &Value, name: &str, names: &mut BTreeSet<String>) {
    match schema["properties"].as_object() {
        Some(properties) => {
            for (field, schema) in properties {
                let dot = if name.is_empty() { "" } else { "." };
                schema_names(schema, &format!("{name}{dot}{field}"), names);
            }
        }
        None => drop(names.insert(name.to_owned())),
    }
}

#[test]
fn every_value_is_described_and_in_the_schema() {
    let (text, values) = values();
    let described: BTreeSet<_> = entries(&text).into_iter().map(|entry| entry.name).collect();
    let mut missing = Vec::new();
    undescribed(&values, "", &described, &mut missing);
    assert_eq!(missing, Vec::<String>::new());

    let schema = fs::read_to_string(chart().join("values.schema.json")).unwrap();
    let mut names = BTreeSet::new();
    schema_names(&serde_json::from_str(&schema).unwrap(), "", &mut names);
    // Helm's own.
    names.remove("global");
    // Described as a whole.
    names.retain(|name| !name.starts_with("resources."));
    names.insert("resources".to_owned());
    assert_eq!(names, described);
}

#[test]
fn each_example_is_the_manifest_of_its_sample() {
    let read = |path: &std::path::Path| -> Value { serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    for name in examples() {
        let example = read(&chart().join(format!("examples/{name}.yaml")));
        let mut sample = read(&scenarios::repository().join(format!("plugins/{name}/{name}.yaml")));
        sample["spec"]["plugins"][&name].as_object_mut().unwrap().remove("component");
        assert_eq!(example["operators"][&name]["manifest"]["spec"], sample["spec"], "{name}");
    }
}
