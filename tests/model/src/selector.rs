//! Decides which objects a list or a watch is about.

use serde_json::Value;

use crate::meta;
use crate::request::Asked;
use crate::status::Refusal;

/// The conditions that objects have to meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    namespace: Option<String>,
    labels: Vec<Label>,
    fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Label {
    name: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    /// It is there.
    There,
    /// It is not there.
    Absent,
    /// It is one of these.
    In(Vec<String>),
    /// It is none of these, or not there.
    NotIn(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Returns the selector of a request in its namespace, or of the one object of this name.
    ///
    /// # Errors
    /// If its selectors can't be read.
    pub(crate) fn of(asked: &Asked, namespace: Option<&str>, name: Option<&str>) -> Result<Self, Refusal> {
        let labels = asked.parameter("labelSelector").map(labels).transpose()?;
        let fields = asked.parameter("fieldSelector").map(fields).transpose()?;
        let mut fields = fields.unwrap_or_default();
        if let Some(name) = name {
            fields.push(Field { name: "metadata.name".to_owned(), value: name.to_owned(), equal: true });
        }
        Ok(Self { namespace: namespace.map(str::to_owned), labels: labels.unwrap_or_default(), fields })
    }

    /// Returns true if an object is selected.
    pub(crate) fn takes(&self, object: &Value) -> bool {
        let namespace = meta::text(object, "namespace");
        let labels = meta::get(object, "labels");
        let here = self.namespace.as_deref().is_none_or(|wanted| wanted == namespace);
        let label = |Label { name, test }: &Label| {
            let value = labels.and_then(|labels| labels.get(name)).and_then(Value::as_str);
            match test {
                Test::There => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|other| other == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|other| other != value)),
            }
        };
        let field = |Field { name, value, equal }: &Field| {
            let found = match name.as_str() {
                "metadata.namespace" => namespace,
                _ => meta::text(object, "name"),
            };
            (found == value) == *equal
        };
        here && self.labels.iter().all(label) && self.fields.iter().all(field)
    }

    /// Returns true if it is about one name.
    pub(crate) fn is_single(&self) -> bool {
        self.fields.iter().any(|field| field.name == "metadata.name" && field.equal)
    }

    /// Returns true if it leaves out objects, other than by namespace.
    pub(crate) fn is_picky(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

fn labels(text: &str) -> Result<Vec<Label>, Refusal> {
    let mut depth = 0;
    let outside = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(outside).map(str::trim).filter(|part| !part.is_empty()).map(label).collect()
}

fn label(text: &str) -> Result<Label, Refusal> {
    let made = |name: &str, test: Test| {
        let name = name.trim();
        let well = !name.is_empty() && !name.contains([' ', '(', ')', '=', '!']);
        let label = Label { name: name.to_owned(), test };
        well.then_some(label)
            .ok_or_else(|| Refusal::bad(format!("unable to parse requirement: <nil>: Invalid value: {name:?}")))
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    let values = |list: &str| {
        list.trim()
            .trim_start_matches('(')
            .trim_end_matches(')')
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect()
    };
    if let Some((name, value)) = text.split_once("!=") {
        return made(name, Test::NotIn(one(value)));
    }
    if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return made(name, Test::In(one(value)));
    }
    if let Some((name, list)) = text.split_once(" notin ") {
        return made(name, Test::NotIn(values(list)));
    }
    if let Some((name, list)) = text.split_once(" in ") {
        return made(name, Test::In(values(list)));
    }
    match text.strip_prefix('!') {
        Some(name) => made(name, Test::Absent),
        None => made(text, Test::There),
    }
}

fn fields(text: &str) -> Result<Vec<Field>, Refusal> {
    let field = |part: &str| {
        let (name, value, equal) = match (part.split_once("!="), part.split_once("==").or_else(|| part.split_once('=')))
        {
            (Some((name, value)), _) => (name, value, false),
            (None, Some((name, value))) => (name, value, true),
            (None, None) => {
                return Err(Refusal::bad(format!("invalid selector: '{part}'; can't understand '{part}'")));
            }
        };
        if !["metadata.name", "metadata.namespace"].contains(&name) {
            return Err(Refusal::bad(format!(
                "{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )));
        }
        Ok(Field { name: name.to_owned(), value: value.to_owned(), equal })
    };
    text.split(',').filter(|part| !part.is_empty()).map(field).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_told_apart() {
        let object = json!({ "metadata": { "name": "x", "namespace": "n", "labels": { "a": "1", "b": "" } } });
        let table = [
            ("a", true),
            ("c", false),
            ("!c", true),
            ("a=1", true),
            ("a==2", false),
            ("a!=2,c!=1", true),
            ("a in (1, 2),b", true),
            ("a notin (1,2)", false),
            ("c notin (1)", true),
        ];
        for (text, expected) in table {
            let selector = Selector { labels: labels(text).unwrap(), ..Selector::default() };
            assert_eq!(selector.takes(&object), expected, "{text}");
        }
        assert!(labels("a b").is_err());
    }

    #[test]
    fn names_and_namespaces_are_told_apart() {
        let object = json!({ "metadata": { "name": "x", "namespace": "n" } });
        for (text, expected) in [
            ("metadata.name=x", true),
            ("metadata.namespace!=n", false),
            ("metadata.name=x,metadata.namespace=m", false),
        ] {
            let selector = Selector { fields: fields(text).unwrap(), ..Selector::default() };
            assert_eq!(selector.takes(&object), expected, "{text}");
        }
        assert!(fields("spec.x=1").is_err());
    }
}
