//! Makes of an object of a custom kind what an API server would keep of it, and says where it does not fit the definition.
//!
//! Formats and the rules in CEL that a definition may have (`x-kubernetes-validations`) are not asked.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::{Schema, is_open};
use crate::budget::{Budget, Exceeded};
use crate::text;
use crate::yaml::join;

/// The most fields that are told; of others it is said how many there are.
const TOLD: usize = 64;

/// The longest quotation of a value, and of the names of fields, in bytes.
const QUOTED: usize = 60;
const NAMES: usize = 300;

/// What any object has, whatever its schema says.
const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];

const EITHER: &str = "x-kubernetes-int-or-string";

/// What becomes of null where a field can't be null and has no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// The field is left out, as of what is created, replaced or patched.
    LeftOut,
    /// It does not fit, as of what is applied on the server's side.
    Refused,
}

/// A field that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// Its path: `spec.ports[0].name`; empty for the object itself.
    pub path: String,
    /// What was found there, and what would be right.
    pub why: String,
    /// True if there is no such field: an API server leaves it out, and takes the rest.
    pub unknown: bool,
}

impl Schema<'_> {
    /// Fills in the defaults of an object, and leaves out what its kind does not have, as an API server does. Returns what does not fit.
    ///
    /// # Errors
    /// [`Exceeded`] if that costs too much.
    ///
    /// ```
    /// # use capstan_core::budget::Budget;
    /// # use capstan_core::schema::{Nulls, Schema};
    /// # use serde_json::json;
    /// let size = json!({ "type": "integer", "default": 3, "maximum": 9 });
    /// let spec = json!({ "type": "object", "properties": { "size": size } });
    /// let schema = Schema::of(json!({ "type": "object", "properties": { "spec": spec } }));
    /// let mut object = json!({ "spec": {} });
    /// assert_eq!(schema.admit(&mut object, Nulls::LeftOut, &mut Budget::of_run()), Ok(vec![]));
    /// assert_eq!(object, json!({ "spec": { "size": 3 } }));
    /// let mut object = json!({ "spec": { "size": 12 } });
    /// let unfit = schema.admit(&mut object, Nulls::LeftOut, &mut Budget::of_run()).unwrap();
    /// assert_eq!(unfit[0].to_string(), "spec.size: found 12; expected at most 9");
    /// ```
    pub fn admit(&self, object: &mut Value, nulls: Nulls, budget: &mut Budget) -> Result<Vec<Unfit>, Exceeded> {
        let mut visit = Visit { unfit: Vec::new(), most: TOLD, more: 0, nulls, budget };
        visit.settle(&self.root, object, "")?;
        let unknown = visit.more;
        visit.fits(&self.root, object, "")?;
        let Visit { mut unfit, more, .. } = visit;
        if more > 0 {
            unfit.push(Unfit { path: String::new(), why: format!("and {more} more"), unknown: more == unknown });
        }
        Ok(unfit)
    }
}

struct Visit<'b> {
    unfit: Vec<Unfit>,
    /// So many are told.
    most: usize,
    /// How many others there are.
    more: usize,
    nulls: Nulls,
    budget: &'b mut Budget,
}

// === defaults, and what is unknown ===

impl Visit<'_> {
    fn settle(&mut self, node: &Value, value: &mut Value, path: &str) -> Result<(), Exceeded> {
        self.budget.text(path.len())?;
        match value {
            Value::Object(fields) => self.settle_fields(node, fields, path),
            Value::Array(items) => {
                let items = items.iter_mut().enumerate();
                node.get("items").map_or(Ok(()), |node| {
                    items.into_iter().try_for_each(|(n, item)| {
                        if let Some(default) = node.get("default").filter(|_| says_nothing(node, item)) {
                            self.budget.make(default.to_string().len())?;
                            *item = default.clone();
                        }
                        self.settle(node, item, &format!("{path}[{n}]"))
                    })
                })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// Whether null stays in a field that can't be null, so that it does not fit.
    fn refuses_null(&self, node: &Value) -> bool {
        let is_typed = node.get("type").is_some() || is(node, EITHER);
        self.nulls == Nulls::Refused && is_typed && node.get("default").is_none()
    }

    fn settle_fields(&mut self, node: &Value, fields: &mut Map<String, Value>, path: &str) -> Result<(), Exceeded> {
        let none = Map::new();
        let known = node.get("properties").and_then(Value::as_object).unwrap_or(&none);
        for (name, node) in known {
            self.budget.text(name.len())?;
            if fields.get(name).is_some_and(|value| says_nothing(node, value) && !self.refuses_null(node)) {
                fields.remove(name);
            }
            if let (None, Some(default)) = (fields.get(name), node.get("default")) {
                self.budget.make(default.to_string().len())?;
                fields.insert(name.clone(), default.clone());
            }
        }
        let others = node.get("additionalProperties").filter(|others| others.is_object());
        let names: Vec<_> =
            fields.keys().filter(|name| !path.is_empty() || !ALWAYS.contains(&&***name)).cloned().collect();
        for name in names {
            let below = join(path, &name);
            if let Some(node) = known.get(&name).or(others) {
                let value = fields.get_mut(&name);
                let is_nothing = value.as_ref().is_some_and(|value| says_nothing(node, value));
                match (value, node.get("default")) {
                    (Some(value), Some(default)) if is_nothing => {
                        self.budget.make(default.to_string().len())?;
                        *value = default.clone();
                    }
                    _ if is_nothing && !self.refuses_null(node) => drop(fields.remove(&name)),
                    (Some(value), _) => self.settle(node, value, &below)?,
                    (None, _) => {}
                }
            } else if !keeps_all(node) {
                fields.remove(&name);
                self.tell(&below, true, || lacks(known));
            }
        }
        Ok(())
    }
}

/// Whether a value is null where that is no value.
fn says_nothing(node: &Value, value: &Value) -> bool {
    value.is_null() && !is(node, "nullable")
}

/// Returns true if what a schema does not name is kept below a node.
fn keeps_all(node: &Value) -> bool {
    let shaped = node.get("type").is_some_and(|kind| kind == "object") || node.get("properties").is_some();
    !shaped || node.as_object().is_some_and(is_open)
}

fn lacks(known: &Map<String, Value>) -> String {
    let names: BTreeSet<_> = known.keys().map(String::as_str).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let there = if names.is_empty() { "none" } else { &names };
    format!("there is no such field; there is {}", text::said_within(there, NAMES))
}

// === what does not fit ===

impl Visit<'_> {
    /// Tells of a field, which is not even put into words if many are told already.
    fn tell(&mut self, path: &str, unknown: bool, why: impl FnOnce() -> String) {
        if self.unfit.len() < self.most {
            self.unfit.push(Unfit { path: path.to_owned(), why: why(), unknown });
        } else {
            self.more += 1;
        }
    }

    fn wrong(&mut self, path: &str, found: &Value, expected: impl FnOnce() -> String) {
        self.tell(path, false, || {
            let found = found.to_string();
            format!("found {}; expected {}", text::said_within(&found, QUOTED), expected())
        });
    }

    fn fits(&mut self, node: &Value, value: &Value, path: &str) -> Result<(), Exceeded> {
        self.budget.text(path.len())?;
        if value.is_null() && is(node, "nullable") {
            return Ok(());
        }
        let either = if is(node, EITHER) { Some("whole number or text") } else { None };
        let kind = either.or_else(|| node.get("type").and_then(Value::as_str).map(named));
        if let Some(kind) = kind.filter(|kind| !is_a(kind, value)) {
            self.wrong(path, value, || format!("a {kind}"));
            return Ok(());
        }
        let listed = node.get("enum").and_then(Value::as_array);
        self.budget.step(u64::try_from(listed.map_or(0, Vec::len)).unwrap_or(u64::MAX))?;
        if let Some(all) = listed.filter(|all| !all.contains(value)) {
            self.wrong(path, value, || {
                let all: Vec<_> = all.iter().map(ToString::to_string).collect();
                format!("one of {}", text::said_within(&all.join(", "), NAMES))
            });
        }
        match value {
            Value::Number(number) => self.number_fits(node, value, path, number.as_f64().unwrap_or_default()),
            Value::String(text) => {
                let count = text.chars().count();
                self.count_fits(node, (value, path), count, ["minLength", "maxLength", "characters"]);
                let pattern = node.get("pattern").and_then(Value::as_str);
                if let Some(pattern) = pattern
                    && let Ok(false) = crate::cel::matches(text, pattern, self.budget)
                {
                    self.wrong(path, value, || format!("what matches {pattern}"));
                }
            }
            Value::Array(items) => {
                self.count_fits(node, (value, path), items.len(), ["minItems", "maxItems", "entries"]);
                if let Some(node) = node.get("items") {
                    for (n, item) in items.iter().enumerate() {
                        self.fits(node, item, &format!("{path}[{n}]"))?;
                    }
                }
            }
            Value::Object(fields) => {
                self.count_fits(node, (value, path), fields.len(), ["minProperties", "maxProperties", "fields"]);
                self.fields_fit(node, fields, path)?;
            }
            Value::Null | Value::Bool(_) => {}
        }
        self.combinations_fit(node, value, path)
    }

    fn fields_fit(&mut self, node: &Value, fields: &Map<String, Value>, path: &str) -> Result<(), Exceeded> {
        let required = node.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name)) {
            self.tell(path, false, || format!("the field `{name}` is missing"));
        }
        let known = node.get("properties").and_then(Value::as_object);
        let others = node.get("additionalProperties").filter(|others| others.is_object());
        for (name, value) in fields {
            if let Some(node) = known.and_then(|known| known.get(name)).or(others) {
                self.fits(node, value, &join(path, name))?;
            }
        }
        Ok(())
    }

    fn number_fits(&mut self, node: &Value, value: &Value, path: &str, number: f64) {
        let bound = |name: &str| node.get(name).and_then(Value::as_f64);
        if let Some(least) = bound("minimum") {
            if is(node, "exclusiveMinimum") && number <= least {
                self.wrong(path, value, || format!("more than {least}"));
            } else if number < least {
                self.wrong(path, value, || format!("at least {least}"));
            }
        }
        if let Some(most) = bound("maximum") {
            if is(node, "exclusiveMaximum") && number >= most {
                self.wrong(path, value, || format!("less than {most}"));
            } else if number > most {
                self.wrong(path, value, || format!("at most {most}"));
            }
        }
        if let Some(unit) = bound("multipleOf").filter(|unit| *unit > 0.0 && (number / unit).fract() != 0.0) {
            self.wrong(path, value, || format!("a multiple of {unit}"));
        }
    }

    fn count_fits(&mut self, node: &Value, (value, path): (&Value, &str), count: usize, names: [&str; 3]) {
        let [least, most, what] = names;
        let bound = |name: &str| node.get(name).and_then(Value::as_u64).and_then(|bound| usize::try_from(bound).ok());
        if let Some(least) = bound(least).filter(|least| count < *least) {
            self.wrong(path, value, || format!("at least {least} {what}"));
        }
        if let Some(most) = bound(most).filter(|most| count > *most) {
            self.wrong(path, value, || format!("at most {most} {what}"));
        }
    }

    /// Asks what a schema says of a value beside its type.
    fn combinations_fit(&mut self, node: &Value, value: &Value, path: &str) -> Result<(), Exceeded> {
        let parts = |name: &str| node.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for part in parts("allOf") {
            self.fits(part, value, path)?;
        }
        for (name, expected) in [("anyOf", "what fits one of several"), ("oneOf", "what fits exactly one of several")] {
            let mut fitting = 0_usize;
            for part in parts(name) {
                fitting += usize::from(self.would_fit(part, value, path)?);
            }
            let is_wrong = if name == "anyOf" { fitting == 0 } else { fitting != 1 };
            if !parts(name).is_empty() && is_wrong {
                self.wrong(path, value, || format!("{expected} ({name})"));
            }
        }
        if let Some(not) = node.get("not")
            && self.would_fit(not, value, path)?
        {
            self.wrong(path, value, || "something else (not)".to_owned());
        }
        Ok(())
    }

    fn would_fit(&mut self, node: &Value, value: &Value, path: &str) -> Result<bool, Exceeded> {
        let mut visit = Visit { unfit: Vec::new(), most: 0, more: 0, nulls: self.nulls, budget: self.budget };
        visit.fits(node, value, path)?;
        Ok(visit.more == 0)
    }
}

fn is(node: &Value, mark: &str) -> bool {
    node.get(mark) == Some(&Value::Bool(true))
}

/// Returns what people call a type.
fn named(kind: &str) -> &str {
    match kind {
        "integer" => "whole number",
        "string" => "text",
        "boolean" => "truth value",
        "array" => "list",
        "object" => "mapping",
        other => other,
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    let is_whole = |value: &Value| value.as_f64().is_some_and(|number| number.fract() == 0.0);
    match kind {
        "whole number" => is_whole(value),
        "number" => value.is_number(),
        "text" => value.is_string(),
        "truth value" => value.is_boolean(),
        "list" => value.is_array(),
        "mapping" => value.is_object(),
        "whole number or text" => is_whole(value) || value.is_string(),
        _ => true,
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, why, .. } = self;
        if path.is_empty() { f.write_str(why) } else { write!(f, "{path}: {why}") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema<'static> {
        let members = json!({ "type": "array", "maxItems": 2, "items": { "type": "object", "properties": {
            "name": { "type": "string" }, "role": { "type": "string", "default": "member" },
        } } });
        let spec = json!({ "type": "object", "required": ["lead"], "properties": {
            "lead": { "type": "string", "minLength": 2, "pattern": "^[a-z]+$" },
            "size": { "type": "integer", "default": 3, "minimum": 1, "maximum": 9, "exclusiveMaximum": true, "multipleOf": 1 },
            "tier": { "type": "string", "enum": ["gold", "silver"], "nullable": true },
            "port": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "share": { "type": "number", "not": { "maximum": 0 } },
            "labels": { "type": "object", "maxProperties": 1, "additionalProperties": { "type": "string" } },
            "rest": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "source": { "type": "object", "properties": { "git": { "type": "string" }, "http": { "type": "string" } },
                "oneOf": [{ "required": ["git"] }, { "required": ["http"] }] },
            "members": members,
        } });
        Schema::of(json!({ "type": "object", "required": ["spec"], "properties": { "spec": spec } }))
    }

    fn admitted(spec: &Value) -> (Value, Vec<String>) {
        admitted_with(Nulls::LeftOut, spec)
    }

    fn admitted_with(nulls: Nulls, spec: &Value) -> (Value, Vec<String>) {
        let mut object =
            json!({ "apiVersion": "sample.dev/v1", "kind": "Team", "metadata": { "name": "a" }, "spec": spec });
        let unfit = schema().admit(&mut object, nulls, &mut Budget::of_run()).unwrap();
        assert_eq!(object["metadata"], json!({ "name": "a" }));
        (object["spec"].take(), unfit.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_left_out_gets_its_default_and_what_nobody_has_goes() {
        let spec = json!({ "lead": "ann", "size": null, "tier": null, "rest": { "any": 1 }, "labels": { "x": "y" }, "members": [{ "name": "bob" }] });
        let filled = json!({ "lead": "ann", "size": 3, "tier": null, "rest": { "any": 1 }, "labels": { "x": "y" }, "members": [{ "name": "bob", "role": "member" }] });
        assert_eq!(admitted(&spec), (filled, vec![]));
        let (left, said) = admitted(&json!({ "lead": "ann", "colour": "red", "members": [{ "nmae": "bob" }] }));
        assert_eq!(left, json!({ "lead": "ann", "size": 3, "members": [{ "role": "member" }] }));
        let expected = [
            "spec.colour: there is no such field; there is labels, lead, members, port, rest, share, size, source, tier",
            "spec.members[0].nmae: there is no such field; there is name, role",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn null_is_left_out_or_refused_where_no_default_stands_for_it() {
        let members = |of: Value| json!({ "lead": "ann", "members": of });
        for (more, left_out, refused) in [
            (json!({ "rest": null }), Ok(json!({})), "spec.rest: found null; expected a mapping"),
            (json!({ "port": null }), Ok(json!({})), "spec.port: found null; expected a whole number or text"),
            (
                json!({ "labels": { "a": null } }),
                Ok(json!({ "labels": {} })),
                "spec.labels.a: found null; expected a text",
            ),
            (json!({ "rest": { "a": null } }), Ok(json!({ "rest": { "a": null } })), ""),
            (json!({ "size": null }), Ok(json!({})), ""),
            (json!({ "tier": null }), Ok(json!({ "tier": null })), ""),
            (
                members(json!([null])),
                Err("spec.members[0]: found null; expected a mapping"),
                "spec.members[0]: found null; expected a mapping",
            ),
        ] {
            let whole = |more: &Value| {
                let mut spec = json!({ "lead": "ann", "size": 3 });
                spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                spec
            };
            let (found, said) = admitted_with(Nulls::LeftOut, &whole(&more));
            match left_out {
                Ok(left) => assert_eq!((found, said), (whole(&left), vec![])),
                Err(wrong) => assert_eq!(said, [wrong]),
            }
            let (_, said) = admitted_with(Nulls::Refused, &whole(&more));
            assert_eq!(said.concat(), refused, "{more}");
        }
    }

    #[test]
    fn what_an_api_server_would_refuse_is_told_at_its_field() {
        for (more, expected) in [
            (json!({ "lead": null }), "spec: the field `lead` is missing"),
            (json!({ "lead": 1 }), "spec.lead: found 1; expected a text"),
            (json!({ "lead": "a" }), "spec.lead: found \"a\"; expected at least 2 characters"),
            (json!({ "lead": "Ann" }), "spec.lead: found \"Ann\"; expected what matches ^[a-z]+$"),
            (json!({ "size": 9 }), "spec.size: found 9; expected less than 9"),
            (json!({ "size": 0 }), "spec.size: found 0; expected at least 1"),
            (json!({ "size": "3" }), "spec.size: found \"3\"; expected a whole number"),
            (json!({ "size": 1.5 }), "spec.size: found 1.5; expected a whole number"),
            (json!({ "tier": "iron" }), "spec.tier: found \"iron\"; expected one of \"gold\", \"silver\""),
            (json!({ "port": true }), "spec.port: found true; expected a whole number or text"),
            (json!({ "share": 0 }), "spec.share: found 0; expected something else (not)"),
            (json!({ "labels": { "a.b": 1 } }), "spec.labels[\"a.b\"]: found 1; expected a text"),
            (
                json!({ "labels": { "a": "", "b": "" } }),
                "spec.labels: found {\"a\":\"\",\"b\":\"\"}; expected at most 1 fields",
            ),
            (json!({ "members": ["bob"] }), "spec.members[0]: found \"bob\"; expected a mapping"),
            (
                json!({ "members": [{}, {}, {}] }),
                "spec.members: found [{\"role\":\"member\"},{\"role\":\"member\"},{\"role\":\"member\"}]; expected at most 2 entries",
            ),
            (json!({ "source": {} }), "spec.source: found {}; expected what fits exactly one of several (oneOf)"),
        ] {
            let mut spec = json!({ "lead": "ann" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(admitted(&spec).1, [expected]);
        }
        for fine in [
            json!({ "port": 80 }),
            json!({ "port": "http" }),
            json!({ "share": 0.5 }),
            json!({ "source": { "git": "g" } }),
        ] {
            let mut spec = json!({ "lead": "ann" });
            spec.as_object_mut().unwrap().extend(fine.as_object().unwrap().clone());
            assert_eq!(admitted(&spec).1, [""; 0], "{fine}");
        }
    }

    #[test]
    fn of_many_fields_that_do_not_fit_some_are_told_and_the_others_counted() {
        let spec: Map<_, _> = (0..1000).map(|n| (format!("f{n}"), Value::Null)).collect();
        let (_, said) = admitted_with(Nulls::Refused, &json!({ "lead": "ann", "labels": spec }));
        assert_eq!((said.len(), said.last().map(String::as_str)), (TOLD + 1, Some("and 937 more")));
    }

    #[test]
    fn what_costs_too_much_is_given_up() {
        let spec = json!({ "lead": "ann", "rest": { "deep": "x".repeat(100) } });
        let mut object = json!({ "spec": spec });
        assert!(schema().admit(&mut object, Nulls::LeftOut, &mut Budget::of(3)).is_err());
    }
}
