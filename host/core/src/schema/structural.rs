//! Decides which structural schema, the one form that a `CustomResourceDefinition` may have, says the same as a JSON Schema made of types.

use serde_json::{Map, Value, json};

mod words;

use super::structural::words::{format, is_meaningless, is_meant, scalar};
use crate::budget::LEVELS;

/// A schema, by its keywords.
pub(super) type Keywords = Map<String, Value>;

/// The most places of a schema, with all that it refers to in place.
const PLACES: usize = 20_000;

const ANY: &str = "x-kubernetes-preserve-unknown-fields";
const EITHER: &str = "x-kubernetes-int-or-string";
const LIST: &str = "x-kubernetes-list-type";

/// Why there is no structural schema that says the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Misfit {
    /// The field, as people write it.
    pub field: String,
    /// What was found there, and what would be right.
    pub message: String,
}

/// Returns the structural schema of a JSON Schema, whatever draft it is of: without references, with one type at each place, `null` as `nullable`.
///
/// # Errors
/// [`Misfit`] if types say what no such schema can, with the field.
///
/// ```
/// # use capstan_core::schema::structural;
/// # use serde_json::json;
/// let sizes = json!({ "type": "array", "items": { "$ref": "#/$defs/Size" } });
/// let said = json!({ "type": "object", "properties": { "sizes": sizes }, "$defs": { "Size": { "type": ["integer", "null"] } } });
/// let sizes = json!({ "type": "array", "items": { "type": "integer", "nullable": true } });
/// let made = json!({ "type": "object", "properties": { "sizes": sizes } });
/// assert_eq!(structural(&said), Ok(made));
/// ```
pub fn structural(said: &Value) -> Result<Value, Misfit> {
    Walk { root: said, path: Vec::new(), within: Vec::new(), places: 0 }.place(said).map(Value::Object)
}

/// A walk over a schema, with what it refers to in place.
struct Walk<'s> {
    root: &'s Value,
    path: Vec<String>,
    /// The references that it is within.
    within: Vec<String>,
    places: usize,
}

impl Walk<'_> {
    /// Returns the structural schema of a place.
    fn place(&mut self, said: &Value) -> Result<Keywords, Misfit> {
        self.places += 1;
        if self.path.len() > LEVELS || self.places > PLACES {
            return Err(self.misfit("this is too deep or too large; expected less, or any JSON"));
        }
        let outside = self.within.len();
        let shaped = self.flat(said).and_then(|all| self.shaped(all));
        self.within.truncate(outside);
        shaped
    }

    /// Returns the keywords of a place, with those of what it refers to and of `allOf` among them.
    fn flat(&mut self, said: &Value) -> Result<Keywords, Misfit> {
        let mut all = match said {
            Value::Object(all) => all.clone(),
            Value::Bool(true) => return Ok(Map::new()),
            Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(self.misfit(&format!("found the schema {said}; expected an object")));
            }
        };
        if let Some(reference) = all.remove("$ref") {
            let target = self.target(&reference)?;
            all = joined(self.flat(&target)?, all);
        }
        if let Some(Value::Array(parts)) = all.remove("allOf") {
            for part in &parts {
                all = joined(self.flat(part)?, all);
            }
        }
        Ok(all)
    }

    /// Returns what a reference leads to.
    fn target(&mut self, reference: &Value) -> Result<Value, Misfit> {
        let text = reference.as_str().unwrap_or_default();
        let name = text.rsplit('/').next().unwrap_or_default();
        if self.within.iter().any(|outer| outer == text) {
            return Err(self.misfit(&format!(
                "the type `{name}` contains itself, which no schema of a CRD can say; expected any JSON in that place"
            )));
        }
        let place = text.strip_prefix('#').map(unescaped);
        let found = place.and_then(|pointer| self.root.pointer(&pointer));
        let found = found.ok_or_else(|| self.misfit(&format!("`{text}` leads to nothing")))?;
        self.within.push(text.to_owned());
        Ok(found.clone())
    }

    fn shaped(&mut self, mut all: Keywords) -> Result<Keywords, Misfit> {
        types(&mut all);
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(parts)) = all.remove(key) {
                return self.either(all, key, &parts);
            }
        }
        constants(&mut all);
        let mut shape = Map::new();
        for (key, value) in all {
            match &*key {
                "properties" => drop(shape.insert(key, Value::Object(self.properties(&value)?))),
                "items" => drop(shape.insert(key, Value::Object(self.within("[]", &value)?))),
                "additionalProperties" => self.others(&value, &mut shape)?,
                _ if is_meaningless(&key, &value) => {}
                _ if is_meant(&key) => drop(shape.insert(key, value)),
                _ => {
                    return Err(self.misfit(&format!(
                        "`{key}: {value}` is nothing that a schema of a CRD can say; expected another type"
                    )));
                }
            }
        }
        self.complete(shape)
    }

    fn properties(&mut self, said: &Value) -> Result<Keywords, Misfit> {
        let all = said.as_object().into_iter().flatten();
        all.map(|(name, schema)| Ok((name.clone(), Value::Object(self.within(name, schema)?)))).collect()
    }

    /// Says what may stand in an object beside the fields that are named.
    fn others(&mut self, said: &Value, shape: &mut Keywords) -> Result<(), Misfit> {
        match said {
            // What is not named is dropped, or refused, by the API server.
            Value::Bool(false) => {}
            Value::Bool(true) => drop(shape.insert(ANY.to_owned(), Value::Bool(true))),
            schema @ (Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                let values = self.within("*", schema)?;
                if values.len() == 1 && values.contains_key(ANY) {
                    shape.insert(ANY.to_owned(), Value::Bool(true));
                } else {
                    shape.insert("additionalProperties".to_owned(), Value::Object(values));
                }
            }
        }
        Ok(())
    }

    /// Makes one schema of several alternatives.
    fn either(&mut self, mut all: Keywords, key: &str, parts: &[Value]) -> Result<Keywords, Misfit> {
        let mut alternatives = Vec::new();
        for part in parts {
            let mut part = self.flat(part)?;
            types(&mut part);
            if part.get("type").is_some_and(|of| of == "null") || part.get("const").is_some_and(Value::is_null) {
                all.insert("nullable".to_owned(), Value::Bool(true));
            } else {
                alternatives.push(part);
            }
        }
        if let [_] = &*alternatives {
            let all = alternatives.into_iter().fold(all, |all, one| joined(one, all));
            return self.shaped(all);
        }
        let constant = |part: &Keywords| part.contains_key("const") || part.contains_key("enum");
        if !alternatives.is_empty() && alternatives.iter().all(constant) {
            return self.shaped(one_of_constants(all, alternatives));
        }
        let mut kinds: Vec<_> = alternatives.iter().map(|part| part.get("type").and_then(Value::as_str)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        match &*kinds {
            [Some("integer" | "number"), Some("string")] => {
                all.insert(EITHER.to_owned(), Value::Bool(true));
                self.shaped(all)
            }
            [Some("object")] => self.hoisted(all, key, alternatives),
            _ => {
                let shown: Vec<_> = kinds.iter().map(|kind| kind.unwrap_or("anything")).collect();
                Err(self.misfit(&format!(
                    "this is {}, and a field of a CRD has one type; expected one, `integer or string`, or any JSON",
                    shown.join(" or ")
                )))
            }
        }
    }

    /// Gives an object the fields of all its variants; which of them go together is said beside.
    fn hoisted(&mut self, mut all: Keywords, key: &str, variants: Vec<Keywords>) -> Result<Keywords, Misfit> {
        let mut fields = match all.remove("properties") {
            Some(own) => self.properties(&own)?,
            None => Map::new(),
        };
        let mut forms = Vec::new();
        for variant in variants {
            let mut form = Map::new();
            let mut tags = Map::new();
            let shape = self.shaped(variant)?;
            for (name, field) in shape.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if let Some(values) = field.get("enum") {
                    tags.insert(name.clone(), json!({ "enum": values }));
                }
                let same = fields.get(name).map_or(Some(field.clone()), |known| common(known, field));
                let same = same.ok_or_else(|| {
                    self.misfit(&format!(
                        "`{name}` has several types, one in each variant; expected one, or another name"
                    ))
                })?;
                fields.insert(name.clone(), same);
            }
            if !tags.is_empty() {
                form.insert("properties".to_owned(), Value::Object(tags));
            }
            form.extend(shape.get("required").map(|names| ("required".to_owned(), names.clone())));
            forms.push(Value::Object(form));
        }
        let mut shape = self.shaped(all)?;
        shape.remove(ANY);
        shape.insert("type".to_owned(), "object".into());
        shape.insert("properties".to_owned(), Value::Object(fields));
        shape.insert(key.to_owned(), Value::Array(forms));
        Ok(shape)
    }

    /// Adds what a structural schema has to say, and corrects what it says otherwise.
    fn complete(&self, mut shape: Keywords) -> Result<Keywords, Misfit> {
        limits(&mut shape);
        required(&mut shape);
        self.null_among_constants(&shape)?;
        if shape.remove("uniqueItems") == Some(Value::Bool(true)) {
            let items = shape.get("items").and_then(|items| items.get("type")).and_then(Value::as_str);
            if items.is_some_and(scalar) {
                shape.insert(LIST.to_owned(), "set".into());
            }
        }
        if shape.contains_key(EITHER) {
            shape.remove("type");
            shape.remove("format");
            return Ok(shape);
        }
        let implied = [("properties", "object"), ("additionalProperties", "object"), ("items", "array")];
        if let (Some((_, kind)), false) =
            (implied.into_iter().find(|(key, _)| shape.contains_key(*key)), shape.contains_key("type"))
        {
            shape.insert("type".to_owned(), kind.into());
        }
        let Some(kind) = shape.get("type") else {
            // What may be anything is kept as it is.
            shape.insert(ANY.to_owned(), Value::Bool(true));
            return Ok(shape);
        };
        match kind.as_str() {
            Some("array") if !shape.contains_key("items") => {
                shape.insert("items".to_owned(), json!({ ANY: true }));
            }
            Some("object") if shape.contains_key("properties") && shape.contains_key("additionalProperties") => {
                return Err(self.misfit(
                    "these are fields beside any others of one type, and an object of a CRD has either; expected a map of its own",
                ));
            }
            Some("object")
                if !["properties", "additionalProperties", ANY].iter().any(|key| shape.contains_key(*key)) =>
            {
                shape.insert(ANY.to_owned(), Value::Bool(true));
            }
            Some(kind) if scalar(kind) => format(&mut shape),
            Some("array" | "object") => {}
            _ => {
                let found = format!("found the type {kind}; expected one, `integer or string`, or any JSON");
                return Err(self.misfit(&found));
            }
        }
        Ok(shape)
    }

    /// Makes sure that nothing within is one of several constants or `null`: whatever a schema says of that, the API server refuses the `null`.
    fn null_among_constants(&self, shape: &Keywords) -> Result<(), Misfit> {
        let fields = shape.get("properties").and_then(Value::as_object).into_iter().flatten();
        let fields = fields.map(|(name, field)| (&**name, field));
        let others = [("[]", "items"), ("*", "additionalProperties")];
        let others = others.into_iter().filter_map(|(name, key)| Some((name, shape.get(key)?)));
        for (name, field) in fields.chain(others) {
            if field.get("enum").is_some() && field.get("nullable").is_some() {
                let message = "this is one of several constants or null, and the API server takes no null there; expected a field that may be left out";
                let Misfit { field, message } = self.misfit(message);
                let field =
                    if self.path.is_empty() { name.to_owned() } else { format!("{field}.{name}").replace(".[]", "[]") };
                return Err(Misfit { field, message });
            }
        }
        Ok(())
    }

    fn within(&mut self, name: &str, schema: &Value) -> Result<Keywords, Misfit> {
        self.path.push(name.to_owned());
        let shaped = self.place(schema);
        self.path.pop();
        shaped
    }

    fn misfit(&self, message: &str) -> Misfit {
        let field = self.path.join(".").replace(".[]", "[]");
        Misfit { field: if field.is_empty() { "the type".to_owned() } else { field }, message: message.to_owned() }
    }
}

/// Joins the keywords of a part with those beside it, which come first; fields and names that are required are those of both.
fn joined(part: Keywords, beside: Keywords) -> Keywords {
    let mut all = part;
    for (key, value) in beside {
        match (all.get_mut(&key), value) {
            (Some(Value::Object(fields)), Value::Object(more)) if key == "properties" => fields.extend(more),
            (Some(Value::Array(names)), Value::Array(more)) if key == "required" => {
                let more: Vec<_> = more.into_iter().filter(|name| !names.contains(name)).collect();
                names.extend(more);
            }
            (_, value) => drop(all.insert(key, value)),
        }
    }
    all
}

/// Says `nullable` for a type that may be `null`, and `integer or string` for that.
fn types(all: &mut Keywords) {
    let Some(Value::Array(kinds)) = all.get("type") else {
        return;
    };
    let mut kinds: Vec<_> = kinds.iter().filter_map(|kind| kind.as_str().map(str::to_owned)).collect();
    kinds.sort_unstable();
    if kinds.iter().any(|kind| kind == "null") {
        kinds.retain(|kind| kind != "null");
        all.insert("nullable".to_owned(), Value::Bool(true));
    }
    match &*kinds {
        [one] => drop(all.insert("type".to_owned(), (**one).into())),
        // What TypeScript has for it is a number or a text.
        [number, string] if matches!(&**number, "integer" | "number") && string == "string" => {
            all.remove("type");
            all.insert(EITHER.to_owned(), Value::Bool(true));
        }
        several => drop(all.insert("type".to_owned(), several.join(" or ").into())),
    }
}

/// Says `enum` for a constant, with the type of its values.
fn constants(all: &mut Keywords) {
    if let Some(value) = all.remove("const") {
        all.insert("enum".to_owned(), json!([value]));
    }
    let Some(Value::Array(values)) = all.get_mut("enum") else {
        return;
    };
    let before = values.len();
    values.retain(|value| !value.is_null());
    let nullable = values.len() < before;
    let kind = match values.first() {
        Some(Value::String(_)) => Some("string"),
        Some(Value::Bool(_)) => Some("boolean"),
        Some(Value::Number(number)) => Some(if number.is_f64() { "number" } else { "integer" }),
        _ => None,
    };
    if nullable {
        all.insert("nullable".to_owned(), Value::Bool(true));
    }
    if let (Some(kind), false) = (kind, all.contains_key("type")) {
        all.insert("type".to_owned(), kind.into());
    }
}

/// Makes one list of values of several constants, and one description of theirs.
fn one_of_constants(mut all: Keywords, alternatives: Vec<Keywords>) -> Keywords {
    let (mut values, mut lines) = (Vec::new(), Vec::new());
    for mut one in alternatives {
        constants(&mut one);
        let Some(Value::Array(own)) = one.remove("enum") else { continue };
        if let (Some(Value::String(text)), [Value::String(value)]) = (one.get("description"), &*own) {
            lines.push(format!("{value}: {text}"));
        }
        values.extend(own);
    }
    if !lines.is_empty() {
        let before = all.get("description").and_then(Value::as_str).map(|text| format!("{text}\n\n"));
        all.insert("description".to_owned(), format!("{}{}", before.unwrap_or_default(), lines.join("\n")).into());
    }
    all.insert("enum".to_owned(), Value::Array(values));
    all
}

/// Returns what a field of two variants is; `None` if it is something else in each.
fn common(one: &Value, other: &Value) -> Option<Value> {
    let bare = |field: &Value| {
        let mut field = field.clone();
        let values = field
            .as_object_mut()
            .map(|all| (all.remove("description"), all.remove("enum")))
            .and_then(|(_, values)| values);
        (field, values)
    };
    let ((this, values), (that, more)) = (bare(one), bare(other));
    if this != that || values.is_some() != more.is_some() {
        return None;
    }
    let mut all = one.clone();
    if let (Some(Value::Array(mut values)), Some(Value::Array(more))) = (values, more) {
        let new: Vec<_> = more.into_iter().filter(|value| !values.contains(value)).collect();
        values.extend(new);
        all.as_object_mut()?.insert("enum".to_owned(), Value::Array(values));
    }
    Some(all)
}

/// Says limits that are outside as `OpenAPI` 3.0 does: the limit, and that it is outside.
fn limits(shape: &mut Keywords) {
    for (outside, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(Value::Number(number)) = shape.get(outside).cloned() {
            shape.insert(limit.to_owned(), Value::Number(number));
            shape.insert(outside.to_owned(), Value::Bool(true));
        }
    }
    if shape.get("default").is_some_and(Value::is_null) {
        shape.remove("default");
    }
}

/// Leaves out of what is required what the API server fills in. Of a field that may be left out it drops `null`, which is no value of it then.
fn required(shape: &mut Keywords) {
    let mut names = match shape.remove("required") {
        Some(Value::Array(names)) => names,
        _ => Vec::new(),
    };
    if let Some(Value::Object(fields)) = shape.get_mut("properties") {
        let is_filled = |field: &Value| field.get("default").is_some();
        names.retain(|name| name.as_str().is_none_or(|name| !fields.get(name).is_some_and(is_filled)));
        for (name, field) in fields.iter_mut() {
            let may_be_left_out = !names.iter().any(|required| required == name);
            if let (true, false, Value::Object(field)) = (may_be_left_out, is_filled(field), field) {
                field.remove("nullable");
            }
        }
    }
    if !names.is_empty() {
        shape.insert("required".to_owned(), Value::Array(names));
    }
}

/// Returns a pointer of a reference, which is a part of a URL.
fn unescaped(pointer: &str) -> String {
    let mut text = String::new();
    let mut parts = pointer.split('%');
    text.extend(parts.next());
    for part in parts {
        let digit = |place: usize| part.get(place..=place)?.chars().next()?.to_digit(16);
        let code =
            digit(0).zip(digit(1)).and_then(|(high, low)| char::from_u32(16 * high + low)).filter(char::is_ascii);
        if let (Some(code), Some(rest)) = (code, part.get(2..)) {
            text.push(code);
            text.push_str(rest);
        } else {
            text.push('%');
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests;
