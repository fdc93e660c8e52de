//! Makes documents of bytes: few names, so that two documents often speak of the same fields; much of the same, for little input.

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

use crate::expressions;

/// Names that mean something somewhere, and some that are hard to write.
const NAMES: [&str; 20] = [
    "a",
    "b",
    "spec",
    "status",
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "uid",
    "apiVersion",
    "kind",
    "data",
    "containers",
    "",
    "~",
    "a/b",
    "é\u{202e}",
];

/// How deep a document gets by itself; chains come on top.
const DEPTH: usize = 5;

/// How often something is repeated at most.
const COPIES: usize = 100;

/// Bytes, read as documents.
pub(crate) struct Documents<'a>(pub(crate) Unstructured<'a>);

impl Documents<'_> {
    /// Two documents; the second is often the first with a change.
    pub(crate) fn two(&mut self) -> Result<(Value, Value)> {
        let first = self.document()?;
        if self.0.ratio(1, 4)? {
            return Ok((first, self.document()?));
        }
        let mut second = first.clone();
        for _ in 0..self.0.int_in_range(0..=4)? {
            self.change(&mut second)?;
        }
        Ok((first, second))
    }

    /// A document, perhaps deep below a chain of maps and lists.
    pub(crate) fn document(&mut self) -> Result<Value> {
        let mut document = self.value(DEPTH)?;
        if self.0.ratio(1, 8)? {
            let (levels, list) = (self.0.int_in_range(1..=140)?, self.0.arbitrary()?);
            let name = self.name()?;
            for _ in 0..levels {
                document = if list { json!([document]) } else { json!({ name.as_str(): document }) };
            }
        }
        Ok(document)
    }

    /// A document with a name, as objects have it.
    pub(crate) fn object(&mut self) -> Result<Value> {
        let mut object = self.document()?;
        if !object.is_object() {
            object = json!({ "spec": object });
        }
        if self.0.ratio(7, 8)? {
            object["metadata"] = json!({ "name": "a", "namespace": "b", "resourceVersion": "7", "uid": "u" });
        }
        Ok(object)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        let kinds = if depth == 0 { 5 } else { 8 };
        Ok(match self.0.int_in_range(0..=kinds)? {
            0 => Value::Null,
            1 => json!(self.0.arbitrary::<bool>()?),
            2 => json!(self.0.arbitrary::<i64>()?),
            3 => json!(self.0.arbitrary::<f64>()?),
            4 => json!(self.text()?),
            5 => json!(self.0.int_in_range(0..=3)?),
            6 => {
                let count = self.0.int_in_range(0..=4)?;
                let list: Result<Vec<_>> = (0..count).map(|_| self.value(depth - 1)).collect();
                Value::Array(list?)
            }
            7 => {
                let element = self.value(depth.saturating_sub(3))?;
                let count = self.0.int_in_range(0..=COPIES)?;
                // All the same, or a list of maps with keys of their own.
                if self.0.arbitrary()? {
                    Value::Array(vec![element; count])
                } else {
                    let named = |n| json!({ "name": format!("n{n}"), "a": element });
                    (0..count).map(named).collect()
                }
            }
            _ => {
                let count = self.0.int_in_range(0..=4)?;
                let field = |_| Ok((self.name()?, self.value(depth - 1)?));
                let fields: Result<Map<_, _>> = (0..count).map(field).collect();
                Value::Object(fields?)
            }
        })
    }

    pub(crate) fn name(&mut self) -> Result<String> {
        if self.0.ratio(1, 16)? {
            return self.text();
        }
        Ok((*self.0.choose(&NAMES)?).to_owned())
    }

    fn text(&mut self) -> Result<String> {
        let text: String = self.0.arbitrary::<&str>()?.chars().take(40).collect();
        let copies = if self.0.ratio(1, 16)? { COPIES } else { 1 };
        Ok(text.repeat(copies))
    }

    /// Changes something somewhere.
    pub(crate) fn change(&mut self, document: &mut Value) -> Result<()> {
        if self.0.ratio(3, 4)? {
            match document {
                Value::Array(list) if !list.is_empty() => {
                    let at = self.0.choose_index(list.len())?;
                    return self.change(&mut list[at]);
                }
                Value::Object(fields) if !fields.is_empty() => {
                    let at = self.0.choose_index(fields.len())?;
                    let field = fields.values_mut().nth(at);
                    return field.map_or(Ok(()), |field| self.change(field));
                }
                _ => {}
            }
        }
        match document {
            Value::Array(list) if !list.is_empty() => {
                let at = self.0.choose_index(list.len())?;
                match self.0.int_in_range(0..=2)? {
                    0 => drop(list.remove(at)),
                    1 => list.insert(at, self.value(2)?),
                    _ => list.rotate_left(at),
                }
            }
            Value::Object(fields) => {
                let name = self.name()?;
                if fields.remove(&name).is_none() {
                    fields.insert(name, self.value(2)?);
                }
            }
            other => *other = self.value(2)?,
        }
        Ok(())
    }

    /// JSON pointers, most of which are some.
    pub(crate) fn pointers(&mut self) -> Result<Vec<String>> {
        let count = self.0.int_in_range(0..=6)?;
        (0..count).map(|_| self.pointer()).collect()
    }

    fn pointer(&mut self) -> Result<String> {
        if self.0.ratio(1, 16)? {
            return self.text();
        }
        let mut pointer = String::new();
        for _ in 0..self.0.int_in_range(0..=5)? {
            let step = if self.0.ratio(1, 4)? {
                self.0.int_in_range(0..=9)?.to_string()
            } else {
                self.name()?.replace('~', "~0").replace('/', "~1")
            };
            pointer.push('/');
            pointer.push_str(&step);
        }
        Ok(pointer)
    }

    /// A JSON patch; its copies may double what they copy.
    pub(crate) fn patch(&mut self, document: &Value) -> Result<Value> {
        let root = match document {
            Value::Object(fields) => fields.keys().next().cloned().unwrap_or_default(),
            _ => "0".to_owned(),
        };
        let root = format!("/{}", root.replace('~', "~0").replace('/', "~1"));
        let count = self.0.int_in_range(0..=30)?;
        let step = |n| {
            let op = *self.0.choose(&["add", "remove", "replace", "move", "copy", "copy", "copy", "test"])?;
            let known = self.0.arbitrary()?;
            let (from, path) =
                if known { (root.clone(), format!("{root}/k{n}")) } else { (self.pointer()?, self.pointer()?) };
            let value = self.value(2)?;
            Ok(json!({ "op": op, "from": from, "path": path, "value": value }))
        };
        (0..count).map(step).collect()
    }

    /// A `fieldsV1` document, most often of the fields of a document.
    pub(crate) fn fields(&mut self, document: &Value) -> Result<String> {
        if self.0.ratio(1, 8)? {
            return Ok(self.document()?.to_string());
        }
        let mut fields = owned(document);
        for _ in 0..self.0.int_in_range(0..=3)? {
            self.change(&mut fields)?;
        }
        Ok(fields.to_string())
    }

    /// What a template of an object may be: a document in a few of whose texts expressions stand.
    pub(crate) fn template(&mut self) -> Result<Value> {
        let mut template = json!({ "metadata": { "name": "${primary.metadata.name}" } });
        for _ in 0..self.0.int_in_range(1..=3)? {
            let mut part = self.templated()?;
            for _ in 0..self.0.int_in_range(0..=3)? {
                let beside = self.value(1)?;
                part = if self.0.arbitrary()? { json!([beside, part]) } else { json!({ self.name()?: part }) };
            }
            template[self.name()?] = part;
        }
        Ok(template)
    }

    /// A text with expressions, or one alone.
    fn templated(&mut self) -> Result<Value> {
        let first = self.expression()?;
        if self.0.arbitrary()? {
            return Ok(json!(format!("${{{first}}}")));
        }
        let (before, second) = (self.text()?, self.expression()?);
        Ok(json!(format!("{before}${{{first}}}$${{${{{second}}}")))
    }

    /// An expression of a template, which calls another dependent by its name.
    fn expression(&mut self) -> Result<String> {
        Ok(expressions::expression(&mut self.0)?.replace("dependent", "dependents.b"))
    }

    /// Two schemas of kinds, the second often the first with a change.
    pub(crate) fn schemas(&mut self) -> Result<(Value, Value)> {
        let first = self.schema(DEPTH)?;
        let mut second = if self.0.arbitrary()? { first.clone() } else { self.schema(DEPTH)? };
        self.change(&mut second)?;
        Ok((first, second))
    }

    /// A schema; parts of it may be anything, or refer to any other.
    fn schema(&mut self, depth: usize) -> Result<Value> {
        if self.0.ratio(1, 16)? {
            return self.value(depth.min(2));
        }
        let mut schema =
            json!({ "type": *self.0.choose(&["object", "object", "object", "array", "string", "integer"])? });
        if self.0.ratio(1, 8)? {
            let mark = [
                "x-kubernetes-preserve-unknown-fields",
                "x-kubernetes-embedded-resource",
                "x-kubernetes-int-or-string",
            ];
            schema[*self.0.choose(&mark)?] = json!(self.0.arbitrary::<bool>()?);
        }
        if self.0.ratio(1, 8)? {
            schema["$ref"] = json!(format!("#/components/schemas/{}", self.0.choose(&["a", "b", "c"])?));
        }
        if self.0.ratio(1, 8)? {
            schema["x-kubernetes-list-type"] = json!("map");
            schema["x-kubernetes-list-map-keys"] = json!([self.name()?]);
        }
        if depth == 0 {
            return Ok(schema);
        }
        for (part, times) in [("properties", 3), ("allOf", 3), ("items", 1), ("additionalProperties", 1)] {
            if self.0.ratio(1, 2)? {
                continue;
            }
            let parts: Result<Vec<_>> = (0..times).map(|_| Ok((self.name()?, self.schema(depth - 1)?))).collect();
            let parts = parts?.into_iter();
            schema[part] = match part {
                "properties" => Value::Object(parts.collect()),
                "allOf" => parts.map(|(_, part)| part).collect(),
                _ => parts.map(|(_, part)| part).next().unwrap_or_default(),
            };
        }
        Ok(schema)
    }

    /// Paths of names, as expressions have them.
    pub(crate) fn paths(&mut self) -> Result<Vec<Vec<String>>> {
        let count = self.0.int_in_range(0..=4)?;
        let path = |_| {
            let length = self.0.int_in_range(0..=6)?;
            (0..length).map(|_| self.name()).collect()
        };
        (0..count).map(path).collect()
    }

    /// A manifest that is nearly right.
    pub(crate) fn manifest(&mut self) -> Result<String> {
        let mut manifest = json!({
            "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "a" },
            "spec": {
                "plugins": { "a": { "component": { "path": "a.wasm" }, "limits": { "timeout": "5s", "memory": "64Mi" } } },
                "controllers": { "a": {
                    "plugin": "a", "primary": { "apiVersion": "v1", "kind": "ConfigMap" }, "namespaces": ["a"],
                    "workflow": { "dependents": { "a": { "apiVersion": "v1", "kind": "Secret", "reconcileWhen": { "cel": "primary.spec.a" } } } },
                } },
            },
        });
        for _ in 0..self.0.int_in_range(0..=6)? {
            self.change(&mut manifest)?;
        }
        Ok(manifest.to_string())
    }
}

/// Returns a document as a comparison sees it: what is null is as good as missing.
pub(crate) fn seen(document: &Value) -> Value {
    match document {
        Value::Object(fields) => {
            let there = fields.iter().filter(|(_, value)| !value.is_null());
            let field = |(name, value): (&String, &Value)| (name.clone(), seen(value));
            Value::Object(there.map(field).collect())
        }
        Value::Array(list) => {
            let end = list.iter().rposition(|element| !element.is_null());
            list.iter().take(end.map_or(0, |end| end + 1)).map(seen).collect()
        }
        other => other.clone(),
    }
}

/// Returns true if two documents are the same to a comparison, each as it is [`seen`] by one: whole numbers are compared as they are,
/// however large, and others as floats.
pub(crate) fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a == b || ((a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| alike(a, b)))
        }
        _ => one == other,
    }
}

/// Returns the set of all fields of a document, as the API server would record it.
fn owned(document: &Value) -> Value {
    match document {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| (format!("f:{name}"), owned(value));
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(list) => {
            let element = |(at, value): (usize, &Value)| match value.get("name") {
                Some(name) => (format!("k:{}", json!({ "name": name })), owned(value)),
                None if value.is_object() => (format!("i:{at}"), owned(value)),
                None => (format!("v:{value}"), json!({})),
            };
            Value::Object(list.iter().enumerate().map(element).collect())
        }
        _ => json!({}),
    }
}
