//! Decides what an object looks like in whose texts CEL expressions stand, as `${primary.spec.name}`.
//!
//! A text that is one expression, and nothing else, becomes the value of that, of whatever type; null leaves the field or the item out.
//! In any other text an expression becomes a part of it. `$${` stands for `${`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use super::expression::{Expression, Right};
use crate::budget::Budget;
use crate::yaml::{Broken, Quoted, either, join, listed, similar};

mod making;

use making::Making;
pub use making::Unmade;

/// The most expressions in one text, and the most names with which an unknown one is compared.
const EXPRESSIONS: usize = 64;
const COMPARED: usize = 64;

/// An object with expressions in its texts.
#[derive(Clone, PartialEq)]
pub struct Template {
    /// Shared: versions of an operator are copied as often as something is decided about them.
    root: Arc<Node>,
    /// The same with name and namespace alone.
    name: Arc<Node>,
    reads: Reads,
    name_reads: Reads,
}

/// The dependents that expressions look at, as far as is known.
#[derive(Clone, PartialEq)]
enum Reads {
    All,
    Some(BTreeSet<String>),
}

/// A part of a template.
#[derive(Clone, PartialEq)]
pub(crate) enum Node {
    /// What stands there as it is.
    Plain(Json),
    /// The value of an expression.
    Value(Expression),
    /// A text with values of expressions in it.
    Text(Vec<Piece>),
    /// A list.
    List(Vec<Self>),
    /// A mapping.
    Map(Vec<(String, Self)>),
}

/// A part of a text.
#[derive(Clone, PartialEq)]
pub(crate) enum Piece {
    Plain(String),
    Value(Expression),
}

/// What the expressions of a template may name.
#[derive(Clone, Copy)]
pub(crate) struct Names<'n> {
    pub(crate) variables: &'n [&'static str],
    /// The fields of [`DEPENDENTS`].
    pub(crate) dependents: &'n [&'n str],
    /// Where others would have to stand.
    pub(crate) among: &'static str,
}

/// The variable with the objects of other dependents, by their names.
pub const DEPENDENTS: &str = "dependents";

/// The variable that says how the workflow has ended.
pub(crate) const WORKFLOW: &str = "workflow";

// === reading ===

impl Node {
    /// Reads a text, whose value has to be `right` if it is one expression alone.
    ///
    /// # Errors
    /// [`Broken`] where an expression has no end, can't be read or can never work.
    pub(crate) fn parse(text: &str, right: Right, names: Names<'_>) -> Result<Self, Broken> {
        let mut pieces = Vec::new();
        let (mut plain, mut rest, mut offset, mut count) = (String::new(), text, 0, 0);
        while let Some((before, after)) = rest.split_once("${") {
            offset += before.chars().count();
            if let Some(before) = before.strip_suffix('$') {
                plain.extend([before, "${"]);
                (rest, offset) = (after, offset + 2);
                continue;
            }
            plain.push_str(before);
            let broken = |message: &str| Broken { offset, message: message.to_owned() };
            let end =
                end(after).ok_or_else(|| broken("found `${` without the `}` that ends it; `$${` stands for `${`"))?;
            count += 1;
            if count > EXPRESSIONS {
                return Err(broken(&format!("a text has at most {EXPRESSIONS} expressions")));
            }
            offset += 2;
            let (written, after) = (&after[..end], &after[end + 1..]);
            let alone = before.is_empty() && after.is_empty() && pieces.is_empty() && plain.is_empty();
            let right = if alone { right } else { Right::Scalar };
            let expression = expression(written, right, names);
            let expression = expression.map_err(|broken| Broken { offset: offset + broken.offset, ..broken })?;
            if alone {
                return Ok(Self::Value(expression));
            }
            if !plain.is_empty() {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Value(expression));
            (rest, offset) = (after, offset + written.chars().count() + 1);
        }
        plain.push_str(rest);
        if pieces.is_empty() {
            return Ok(Self::Plain(plain.into()));
        }
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        Ok(Self::Text(pieces))
    }

    /// Returns how many parts the expressions of a text have.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Self::Value(expression) => expression.parts(),
            Self::Text(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Plain(_) => 1,
                    Piece::Value(expression) => expression.parts(),
                })
                .sum(),
            Self::Plain(_) | Self::List(_) | Self::Map(_) => 0,
        }
    }

    /// Returns a part of it by the names that lead there.
    fn at(&self, path: &[&str]) -> Option<&Self> {
        let [name, rest @ ..] = path else {
            return Some(self);
        };
        let Self::Map(fields) = self else {
            return None;
        };
        fields.iter().find(|(field, _)| field == name)?.1.at(rest)
    }

    /// Adds its expressions, each with the field of the manifest that it stands in.
    fn expressions<'n>(&'n self, field: &str, found: &mut Vec<(String, &'n Expression)>) {
        match self {
            Self::Plain(_) => {}
            Self::Value(expression) => found.push((field.to_owned(), expression)),
            Self::Text(pieces) => found.extend(pieces.iter().filter_map(|piece| match piece {
                Piece::Plain(_) => None,
                Piece::Value(expression) => Some((field.to_owned(), expression)),
            })),
            Self::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    item.expressions(&format!("{field}[{i}]"), found);
                }
            }
            Self::Map(fields) => {
                for (name, value) in fields {
                    value.expressions(&join(field, name), found);
                }
            }
        }
    }

    /// Returns it as it is written.
    fn written(&self) -> Json {
        let plain = |text: &str| text.replace("${", "$${");
        match self {
            Self::Plain(Json::String(text)) => plain(text).into(),
            Self::Plain(value) => value.clone(),
            Self::Value(expression) => format!("${{{}}}", expression.as_str()).into(),
            Self::Text(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Plain(text) => plain(text),
                    Piece::Value(expression) => format!("${{{}}}", expression.as_str()),
                })
                .collect::<String>()
                .into(),
            Self::List(items) => items.iter().map(Self::written).collect(),
            Self::Map(fields) => fields.iter().map(|(name, value)| (name.clone(), value.written())).collect(),
        }
    }
}

impl Reads {
    fn of(node: &Node) -> Self {
        let mut found = Vec::new();
        node.expressions("", &mut found);
        let paths = found.iter().flat_map(|(_, expression)| expression.paths(DEPENDENTS));
        // The empty path stands for all of them.
        let names: Option<_> = paths.map(|path| path.into_iter().next()).collect();
        names.map_or(Self::All, Self::Some)
    }

    fn has(&self, dependent: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.contains(dependent),
        }
    }
}

fn expression(text: &str, right: Right, names: Names<'_>) -> Result<Expression, Broken> {
    let expression = Expression::parse(text, names.variables)?;
    if let Some(broken) = expression.never(right) {
        return Err(broken);
    }
    let dependent = |offset, name: Option<&String>| {
        let absent = name.filter(|name| !names.dependents.contains(&name.as_str()));
        absent.map_or(Ok(()), |name| Err(unknown(offset, ("dependent", name), names.among, names.dependents)))
    };
    for (offset, path) in expression.fields(DEPENDENTS) {
        dependent(offset, path.first())?;
    }
    for (offset, path) in expression.fields(WORKFLOW) {
        match path.first().map(String::as_str) {
            None | Some("complete") => {}
            Some("ready" | "failed") => dependent(offset, path.get(1))?,
            Some(other) => {
                return Err(unknown(offset, ("field", other), "`workflow`", &["complete", "failed", "ready"]));
            }
        }
    }
    Ok(expression)
}

/// Says of what there is no such thing, and what there is.
fn unknown(offset: usize, (what, name): (&str, &str), among: &str, known: &[&str]) -> Broken {
    let are_few = known.len() <= COMPARED;
    let near = if are_few { similar(name, known) } else { None };
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None if are_few => format!("there are {}", either(known)),
        None => format!("there are {}", listed(known)),
    };
    Broken { offset, message: format!("there is no {what} {} in {among}; {hint}", Quoted(name)) }
}

/// Returns where an expression ends: at the first `}` that belongs neither to a map in it nor to a text.
fn end(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        match c {
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            '{' => depth += 1,
            '"' | '\'' => {
                at += literal(rest, c, text[..at].ends_with(['r', 'R']))?;
                continue;
            }
            '/' if rest.starts_with("//") => {
                at += rest.find('\n')?;
                continue;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}

/// Returns how long the text is that begins with a quote; of a raw one, `\` is a letter.
fn literal(text: &str, quote: char, raw: bool) -> Option<usize> {
    let triple = quote.to_string().repeat(3);
    let quote = if text.starts_with(&triple) { &*triple } else { &text[..1] };
    let mut at = quote.len();
    loop {
        let rest = &text[at..];
        let c = rest.chars().next()?;
        if rest.starts_with(quote) {
            return Some(at + quote.len());
        }
        at += c.len_utf8();
        if c == '\\' && !raw {
            at += text[at..].chars().next()?.len_utf8();
        }
    }
}

// === impl Template ===

impl Template {
    pub(crate) fn new(fields: Vec<(String, Node)>) -> Self {
        let root = Node::Map(fields);
        let name = match root.at(&["metadata"]) {
            Some(Node::Map(metadata)) => {
                let named = metadata.iter().filter(|(field, _)| matches!(&**field, "name" | "namespace"));
                Some(Node::Map(named.cloned().collect()))
            }
            other => other.cloned(),
        };
        let name = Node::Map(name.into_iter().map(|metadata| ("metadata".to_owned(), metadata)).collect());
        Self { reads: Reads::of(&root), name_reads: Reads::of(&name), root: Arc::new(root), name: Arc::new(name) }
    }

    /// Returns its expressions, each with the field that it stands in, of a manifest in which the template is at `field`.
    pub fn expressions(&self, field: &str) -> Vec<(String, &Expression)> {
        let mut found = Vec::new();
        self.root.expressions(field, &mut found);
        found
    }

    /// Returns a plain value that stands in it, by the names that lead there.
    pub(crate) fn plain(&self, path: &[&str]) -> Option<&Json> {
        match self.root.at(path)? {
            Node::Plain(value) => Some(value),
            Node::Value(_) | Node::Text(_) | Node::List(_) | Node::Map(_) => None,
        }
    }

    /// Whether something stands in it at a place.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        self.root.at(path).is_some()
    }

    /// Whether something stands in it at a place, or may.
    pub(crate) fn may_have(&self, path: &[&str]) -> bool {
        let is_made = |end| matches!(path.get(..end).and_then(|path| self.root.at(path)), Some(Node::Value(_)));
        self.has(path) || (1..path.len()).any(is_made)
    }

    /// Whether it looks at a dependent, as far as is known.
    pub fn reads(&self, dependent: &str) -> bool {
        self.reads.has(dependent)
    }

    /// Whether its name or namespace looks at a dependent, as far as is known.
    pub fn name_reads(&self, dependent: &str) -> bool {
        self.name_reads.has(dependent)
    }

    /// Returns it as it is written.
    pub fn written(&self) -> Json {
        self.root.written()
    }

    /// Returns its name and namespace alone, as they are written.
    pub(crate) fn written_name(&self) -> Json {
        self.name.written()
    }

    /// Makes the object that it stands for, as JSON, which the budget pays for.
    ///
    /// # Errors
    /// [`Unmade`] if an expression fails, has a value of a type that can't stand there, or if the object gets too large.
    pub fn make(&self, variables: &[(&str, &Json)], budget: &mut Budget) -> Result<String, Unmade> {
        Making::of(variables, budget).object(&self.root)
    }

    /// Makes the same with its name and namespace alone, for whoever looks for it.
    ///
    /// # Errors
    /// As for [`Template::make`].
    pub fn make_name(&self, variables: &[(&str, &Json)], budget: &mut Budget) -> Result<String, Unmade> {
        Making::of(variables, budget).object(&self.name)
    }
}

impl fmt::Debug for Template {
    /// Writes it as it is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAMES: Names<'_> =
        Names { variables: &["primary", DEPENDENTS], dependents: &["map", "secret"], among: "`dependsOn`" };

    fn read(value: &Json) -> Result<Node, Broken> {
        Ok(match value {
            Json::String(text) => Node::parse(text, Right::Json, NAMES)?,
            Json::Array(items) => Node::List(items.iter().map(read).collect::<Result<_, _>>()?),
            Json::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| Ok((name.clone(), read(value)?)));
                Node::Map(fields.collect::<Result<_, _>>()?)
            }
            other => Node::Plain(other.clone()),
        })
    }

    fn template(value: &Json) -> Template {
        let Node::Map(fields) = read(value).unwrap() else {
            panic!("{value} is no mapping");
        };
        Template::new(fields)
    }

    fn made_within(value: &Json, budget: &mut Budget) -> Result<Json, String> {
        let primary = json!({
            "metadata": { "name": "a" },
            "spec": { "n": 3, "f": 1.5, "b": true, "s": "x", "list": [1, "two", { "three": null }], "map": { "k/1": 1 }, "none": null },
        });
        let map = json!({ "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "a": "1" } });
        let dependents = json!({ "map": map });
        let made = template(value).make(&[("primary", &primary), (DEPENDENTS, &dependents)], budget);
        made.map(|made| serde_json::from_str(&made).unwrap()).map_err(|unmade| unmade.to_string())
    }

    fn made(value: &Json) -> Result<Json, String> {
        made_within(value, &mut Budget::of_run())
    }

    #[test]
    fn one_expression_alone_has_its_whole_value_and_others_are_part_of_a_text() {
        // DT-2, DT-3
        for (text, expected) in [
            ("${primary.spec.n}", json!(3)),
            ("${primary.spec.f}", json!(1.5)),
            ("${primary.spec.b}", json!(true)),
            ("${primary.spec.s}", json!("x")),
            ("${primary.spec.list}", json!([1, "two", { "three": null }])),
            ("${primary.spec.map}", json!({ "k/1": 1 })),
            ("${{'a': [primary.spec.n, {}], 'b': []}}", json!({ "a": [3, {}], "b": [] })),
            ("${{1: 'one', true: 'yes'}}", json!({ "1": "one", "true": "yes" })),
            ("${has(primary.spec.m) ? primary.spec.m : '-'}", json!("-")),
            ("${dependents.map.data.a}", json!("1")),
            (" ${primary.spec.n}", json!(" 3")),
            ("${primary.spec.n}\n", json!("3\n")),
            ("${primary.spec.n}${primary.spec.b}", json!("3true")),
            ("n=${primary.spec.n}, f=${primary.spec.f}, s=${primary.spec.s}.", json!("n=3, f=1.5, s=x.")),
            ("ä${primary.spec.s + 'ö'}ü", json!("äxöü")),
            ("$${primary.spec.n}", json!("${primary.spec.n}")),
            ("$$${primary.spec.n}", json!("$${primary.spec.n}")),
            ("$${${primary.spec.n}", json!("${3")),
            ("$5 and {braces} and $", json!("$5 and {braces} and $")),
            ("${'}' + \"}\" + r'\\' + '''}'}''' + '\\'}'}", json!("}}\\}'}'}")),
            ("${primary.spec.n // }\n + 1}", json!(4)),
        ] {
            assert_eq!(made(&json!({ "a": text })), Ok(json!({ "a": expected })), "{text}");
            let written = template(&json!({ "a": text })).written();
            assert_eq!(made(&written), Ok(json!({ "a": expected })), "{text} is written as {written}");
        }
    }

    #[test]
    fn null_leaves_out_a_field_and_an_item() {
        // DT-2
        let object = json!({ "a": "${primary.spec.none}", "b": null, "c": [1, "${null}", null, 2], "d": { "e": "${null}" }, "f": {} });
        assert_eq!(made(&object), Ok(json!({ "c": [1, 2], "d": {}, "f": {} })));
        assert_eq!(made(&json!({})), Ok(json!({})));
    }

    #[test]
    fn what_has_no_value_is_told_with_its_place_and_never_with_what_a_secret_holds() {
        // DT-4
        let mut budget = Budget::of(10_000);
        let mut failed = |value: Json| {
            let secret = json!({ "kind": "Secret", "metadata": {}, "data": { "a": "MQ==" } });
            let plain = json!({ "primary": { "spec": { "n": 1 } }, "dependents": {} });
            let variables = if value.to_string().contains("secret") { json!({ "secret": secret }) } else { json!({}) };
            let made = template(&value).make(&[("primary", &plain["primary"]), (DEPENDENTS, &variables)], &mut budget);
            made.unwrap_err().to_string()
        };
        let cel = |text: &str| format!("CEL expression {text:?}");
        for (value, expected) in [
            (
                json!({ "data": { "index.html": "<${primary.spec.html}>" } }),
                format!(
                    "the template at /data/index.html: {} failed: there is no field \"html\"",
                    cel("primary.spec.html")
                ),
            ),
            (
                json!({ "a/b": [{ "c~": "${primary.spec.n + 'a'}" }] }),
                format!(
                    "the template at /a~1b/0/c~0: {} failed: + can't be applied to int and string",
                    cel("primary.spec.n + 'a'")
                ),
            ),
            (
                json!({ "a": "x${primary.spec}" }),
                format!(
                    "the template at /a: the value of {} is of type map; a string, a number or a boolean is needed",
                    cel("primary.spec")
                ),
            ),
            (
                json!({ "a": "${[bytes(string(primary.spec.n))]}" }),
                format!(
                    "the template at /a: the value of {} is of type bytes; a value of JSON is needed",
                    cel("[bytes(string(primary.spec.n))]")
                ),
            ),
            (
                json!({ "a": "${double(primary.spec.n) / 0.0}" }),
                format!(
                    "the template at /a: the value of {} is of type double; a value of JSON is needed",
                    cel("double(primary.spec.n) / 0.0")
                ),
            ),
            (
                json!({ "a": "${dependents.secret.data[dependents.secret.data.a]}" }),
                format!(
                    "the template at /a: {} failed: on values of a Secret",
                    cel("dependents.secret.data[dependents.secret.data.a]")
                ),
            ),
        ] {
            assert_eq!(failed(value), expected);
        }
    }

    #[test]
    fn what_would_be_huge_is_refused_and_costs_what_it_is_large() {
        // DT-4
        let size = "the template at /a: what it makes is larger than 4194304 bytes";
        let items = format!("[{}]", ["0"; 40].join(","));
        let times = |times: usize| format!("{items}.map(i, ").repeat(times) + "primary.spec" + &")".repeat(times);
        assert_eq!(made(&json!({ "a": format!("${{{}}}", times(3)) })), Err(size.to_owned()));
        let steps = made_within(&json!({ "a": format!("${{{}}}", times(2)) }), &mut Budget::of(1000));
        assert!(steps.unwrap_err().ends_with("failed: too expensive: it takes more than 1000 steps"));
        // Each of them is little, and all together are not.
        let wide = json!({ "list": vec!["${primary.spec.list}"; 300] });
        assert!(made_within(&wide, &mut Budget::of(100_000)).is_ok());
        let error = "the template at /list/";
        assert!(made_within(&wide, &mut Budget::of(2000)).unwrap_err().starts_with(error));
    }

    #[test]
    fn what_can_never_work_is_told_where_it_stands() {
        // DT-4
        let wrong =
            |text: &str| Node::parse(text, Right::Json, NAMES).map_or_else(|e| e.to_string(), |_| "right".to_owned());
        for (text, expected) in [
            ("ab${primary", "found `${` without the `}` that ends it; `$${` stands for `${`, at character 3"),
            ("${'}", "found `${` without the `}` that ends it; `$${` stands for `${`, at character 1"),
            ("${}", "not a CEL expression: "),
            (
                "ä ${primry}",
                "unknown variable `primry`, did you mean `primary`? Known are `primary` or `dependents`, at character 5",
            ),
            ("${b'a'}", "its value is always of type bytes; a value of JSON is needed, at character 3"),
            ("x ${[1]}", "its value is always of type list; a string, a number or a boolean is needed, at character 5"),
            (
                "x ${1 + 'a'}",
                "this part fails whatever else is there: + can't be applied to int and string, at character 7",
            ),
            (
                "$${ ${dependents.mop.a}",
                "there is no dependent `mop` in `dependsOn`; did you mean `map`?, at character 7",
            ),
            (
                "${dependents.other}",
                "there is no dependent `other` in `dependsOn`; there are `map` or `secret`, at character 3",
            ),
        ] {
            assert!(wrong(text).starts_with(expected), "{text}: {}", wrong(text));
        }
        let names = Names { variables: &["workflow"], ..NAMES };
        for (text, expected) in [
            ("${workflow.complete && workflow.ready.map && has(workflow.failed.secret)}", None),
            ("${workflow.ready}", None),
            ("${workflow.completed}", Some("there is no field `completed` in `workflow`; did you mean `complete`?")),
            ("${has(workflow.failed.mop)}", Some("there is no dependent `mop` in `dependsOn`; did you mean `map`?")),
        ] {
            let found = Node::parse(text, Right::Json, names).map(|_| ()).map_err(|broken| broken.message);
            assert_eq!(found.err().as_deref(), expected, "{text}");
        }
        let many = "${primary}".repeat(65);
        assert!(wrong(&many).starts_with("a text has at most 64 expressions"));
        let name = Node::parse("${size(primary)}", Right::Text, NAMES).map(|_| ()).unwrap_err();
        assert_eq!(name.message, "its value is always of type int; a string is needed");
    }

    #[test]
    fn a_name_is_made_without_the_rest() {
        // DT-1
        let object = json!({ "metadata": { "name": "${primary.metadata.name}-x", "labels": { "a": "${primary.spec.no}" } }, "data": "${primary.spec.no}" });
        let primary = json!({ "metadata": { "name": "a" } });
        let name = template(&object).make_name(&[("primary", &primary)], &mut Budget::of_run());
        assert_eq!(name.as_deref(), Ok(r#"{"metadata":{"name":"a-x"}}"#));
        for (object, has) in [
            (json!({ "metadata": { "name": "a" } }), true),
            (json!({ "metadata": "${primary.metadata}" }), true),
            (json!({ "metadata": { "labels": {} } }), false),
            (json!({ "metadata": "a" }), false),
            (json!({}), false),
        ] {
            assert_eq!(template(&object).may_have(&["metadata", "name"]), has, "{object}");
        }
    }

    #[test]
    fn it_is_known_which_dependents_it_looks_at() {
        for (text, expected) in [
            ("${dependents.map.data}", [true, false]),
            ("${dependents.map.data.a + dependents.secret.data.a}", [true, true]),
            ("${dependents['map'].data}", [true, true]),
            ("${primary.spec}", [false, false]),
        ] {
            let template = template(&json!({ "a": [text] }));
            assert_eq!(["map", "secret"].map(|name| template.reads(name)), expected, "{text}");
        }
        let object = json!({ "metadata": { "name": "${dependents.map.metadata.name}", "labels": { "a": "${dependents.secret.data.a}" } }, "data": "${dependents}" });
        let template = template(&object);
        assert_eq!(["map", "secret"].map(|name| template.reads(name)), [true, true]);
        assert_eq!(["map", "secret"].map(|name| template.name_reads(name)), [true, false]);
    }
}
