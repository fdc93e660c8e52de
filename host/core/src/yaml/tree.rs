//! YAML as a tree in which every node knows its place, so that any later finding can be shown in the text.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_yaml::{Location, MessageFormatter, Options, Spanned, UserMessageFormatter};

use super::diagnostic::{Mark, Place};
use super::stack::with_room;

/// A document.
pub(crate) struct Tree {
    /// Its outermost node.
    pub(crate) root: Node,
    /// Where its nodes are, by their number.
    pub(crate) places: Vec<Place>,
}

/// A node of a document.
pub(crate) struct Node {
    /// Its number in [`Tree::places`].
    pub(crate) place: usize,
    /// What is there.
    pub(crate) value: Value,
}

/// What is at a node. A mapping's keys are nodes with text.
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// Why a text is not YAML.
pub(crate) struct Syntax {
    /// Where reading ended.
    pub(crate) mark: Mark,
    /// The reader's words.
    pub(crate) message: String,
}

/// What the reader says, and what is wrong mostly when it says that.
const USUAL: [(&str, &str); 4] = [
    (
        "did not find expected key",
        "the fields of one mapping begin at the same column: this line, or the one above, is indented otherwise",
    ),
    (
        "mapping values are not allowed",
        "a line with a field is indented too far, or a text with `: ` in it lacks its quotes",
    ),
    ("did not find expected '-' indicator", "the entries of one list begin at the same column, each with `- `"),
    ("cannot start any token", "YAML is indented by spaces, and a text that begins with this character needs quotes"),
];

/// The most nodes of a file, unless it may be a large one.
const NODES: usize = 50_000;

/// How deep they may be within each other.
const DEPTH: usize = 64;

/// The most bytes of the paths of an object's nodes: a long key stands in the path of all that is below it.
const PATHS: usize = 16 << 20;

/// Returns the documents of a file, without the empty ones.
///
/// # Errors
/// [`Syntax`] if the text is no YAML, repeats a key, or is beyond the reader's bounds.
pub(crate) fn documents(text: &str) -> Result<Vec<Tree>, Syntax> {
    within_room(text, || options(NODES))
}

/// Returns the same of a file of objects that kubectl takes, too, and reads it as kubectl does: `yes` is true, and `017` is 15. It has so many
/// nodes at most.
///
/// # Errors
/// As for [`documents`].
pub(crate) fn documents_within(text: &str, nodes: usize) -> Result<Vec<Tree>, Syntax> {
    let options = || {
        serde_yaml::options! {
            strict_booleans: false,
            leading_zero_numbers_as_strings: false,
            underscored_numbers_as_strings: false,
            legacy_octal_numbers: true,
            with_snippet: false,
            budget: serde_yaml::budget! { max_depth: DEPTH, max_nodes: nodes },
        }
    };
    within_room(text, options)
}

fn within_room(text: &str, options: impl FnOnce() -> Options + Send) -> Result<Vec<Tree>, Syntax> {
    let gave_up = || Syntax { mark: mark(Location::UNKNOWN), message: "the reader gave up".to_owned() };
    with_room(|| read(text, options())).unwrap_or_else(|| Err(gave_up()))
}

fn read(text: &str, options: Options) -> Result<Vec<Tree>, Syntax> {
    let documents: Vec<Spanned<Yaml>> =
        serde_yaml::from_str_multiple_with_options(text, options).map_err(|error| Syntax {
            mark: mark(error.location().unwrap_or(Location::UNKNOWN)),
            message: UserMessageFormatter.format_message(&error).into_owned(),
        })?;
    Ok(documents.into_iter().map(tree).collect())
}

/// In manifests `yes` and `017` are texts.
fn options(nodes: usize) -> Options {
    serde_yaml::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
        budget: serde_yaml::budget! { max_depth: DEPTH, max_nodes: nodes },
    }
}

/// The nodes of a JSON document so far.
#[derive(Default)]
struct Numbered {
    places: Vec<Place>,
    /// The bytes of their paths.
    paths: usize,
}

impl Numbered {
    /// Returns the number of the next node; `None` if the paths are too long.
    fn add(&mut self, path: &str) -> Option<usize> {
        self.paths += path.len();
        if self.paths > PATHS {
            return None;
        }
        let place = self.places.len();
        self.places.push(Place { path: path.to_owned(), mark: Mark::default() });
        Some(place)
    }
}

/// Returns a JSON document as a tree, whose nodes know their paths alone; `None` if it is deeper or larger than a file may be, or if its keys
/// are so long that their paths are.
pub(crate) fn of_json(document: &serde_json::Value) -> Option<Tree> {
    let mut numbered = Numbered::default();
    let root = json_node(&mut numbered, "", DEPTH, document)?;
    Some(Tree { root, places: numbered.places })
}

/// Numbers a node of JSON and what is below it, which may be so deep.
fn json_node(numbered: &mut Numbered, path: &str, depth: usize, json: &serde_json::Value) -> Option<Node> {
    let depth = depth.checked_sub(1).filter(|_| numbered.places.len() < NODES)?;
    let place = numbered.add(path)?;
    let value = match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(value) => Value::Number(value.clone()),
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Array(items) => {
            let items =
                items.iter().enumerate().map(|(i, item)| json_node(numbered, &format!("{path}[{i}]"), depth, item));
            Value::List(items.collect::<Option<_>>()?)
        }
        serde_json::Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                let below = join(path, key);
                let key = Node { place: numbered.add(&below)?, value: Value::Text(key.clone()) };
                Some((key, json_node(numbered, &below, depth, value)?))
            });
            Value::Map(fields.collect::<Option<_>>()?)
        }
    };
    Some(Node { place, value })
}

fn tree(document: Spanned<Yaml>) -> Tree {
    let mut places = Vec::new();
    let root = node(&mut places, "", None, document);
    Tree { root, places }
}

/// Numbers a node and what is below it. A list or mapping under a key is shown at that key.
fn node(places: &mut Vec<Place>, path: &str, key: Option<Mark>, yaml: Spanned<Yaml>) -> Node {
    let mark = match (&yaml.value, key) {
        (Yaml::List(_) | Yaml::Map(_) | Yaml::Null, Some(key)) => key,
        (Yaml::List(_) | Yaml::Map(_), None) => Mark { width: 1, ..mark(yaml.defined) },
        _ => mark(yaml.defined),
    };
    let place = places.len();
    places.push(Place { path: path.to_owned(), mark });
    let value = match yaml.value {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => Value::Bool(value),
        Yaml::Number(value) => Value::Number(value),
        Yaml::Text(value) => Value::Text(value),
        Yaml::List(items) => Value::List(
            items.into_iter().enumerate().map(|(i, item)| node(places, &format!("{path}[{i}]"), None, item)).collect(),
        ),
        Yaml::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| {
                    let below = join(path, &key.value);
                    let at = self::mark(key.defined);
                    let place = places.len();
                    places.push(Place { path: below.clone(), mark: at });
                    (Node { place, value: Value::Text(key.value) }, node(places, &below, Some(at), value))
                })
                .collect(),
        ),
    };
    Node { place, value }
}

/// Returns the line of a field in one of the documents of a text, counted without the empty ones, or of what is there of its path. The first
/// line, if there is nothing.
///
/// ```
/// # use capstan_core::yaml::line_of;
/// let text = "spec:\n  name: a\n---\nspec:\n  ports:\n  - name: b\n";
/// assert_eq!(line_of(text, 0, "spec.name"), 2);
/// assert_eq!(line_of(text, 1, "spec.ports[0].number"), 6);
/// ```
pub fn line_of(text: &str, document: usize, path: &str) -> usize {
    let trees = documents(text).unwrap_or_default();
    let Some(tree) = trees.get(document) else { return 1 };
    let ends = path.char_indices().filter(|(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
    let mut paths: Vec<_> = ends.filter_map(|at| path.get(..at)).chain([path]).collect();
    paths.reverse();
    let place = paths.into_iter().find_map(|path| tree.place_of(path)).or_else(|| tree.places.first());
    place.map_or(1, |place| place.mark.line)
}

/// Returns how a text or number is written at a field in one of the documents of a text, counted as for [`line_of`].
///
/// ```
/// # use capstan_core::yaml::written_at;
/// let text = "spec: { yes: on, mode: 017 }\n";
/// assert_eq!(written_at(text, 0, "spec.yes").as_deref(), Some("on"));
/// assert_eq!(written_at(text, 0, "spec.mode").as_deref(), Some("017"));
/// assert_eq!(written_at(text, 0, "spec.no"), None);
/// ```
pub fn written_at(text: &str, document: usize, path: &str) -> Option<String> {
    let trees = documents(text).ok()?;
    let mark = trees.get(document)?.place_of(path)?.mark;
    let line = text.lines().nth(mark.line.checked_sub(1)?)?;
    Some(line.chars().skip(mark.column.checked_sub(1)?).take(mark.width).collect())
}

/// Returns the path of a field: `spec.plugins`, or `labels["a.b"]` where a dot would mislead.
pub(crate) fn join(path: &str, key: &str) -> String {
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return format!("{path}[{key:?}]");
    }
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn mark(location: Location) -> Mark {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    Mark { line: number(location.line()), column: number(location.column()), width: number(location.span().len()) }
}

// === impl Syntax ===

impl Syntax {
    /// Returns what is wrong mostly with a text of which the reader says this.
    pub(crate) fn help(&self) -> Option<&'static str> {
        USUAL.iter().find(|(says, _)| self.message.contains(says)).map(|(_, help)| *help)
    }
}

// === impl Tree ===

impl Tree {
    /// Returns the node of a field of the outermost mapping.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        self.root.field(name)
    }

    /// Returns where the value of a field is, by its path; the key, if that is a list or a mapping.
    pub(crate) fn place_of(&self, path: &str) -> Option<&Place> {
        self.places.iter().rfind(|place| place.path == path)
    }
}

// === impl Node ===

impl Node {
    /// Returns the node of a field, if it is a mapping that has it.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        entries.iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
    }

    /// Returns the items of a node, if it is a list; else none.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => &[],
        }
    }

    /// Returns the node as a JSON document.
    pub(crate) fn json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(value) => value.clone().into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::json).collect(),
            Value::Map(entries) => {
                let entry = |(key, value): &(Self, Self)| Some((key.text()?.to_owned(), value.json()));
                entries.iter().filter_map(entry).collect()
            }
        }
    }

    /// Returns the text of a node, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
        }
    }
}

impl fmt::Display for Node {
    /// Writes what an error message says was found.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Null => f.write_str("nothing"),
            Value::Bool(value) => write!(f, "`{value}`, a truth value"),
            Value::Number(value) => write!(f, "`{value}`, a number"),
            // Only where it could be taken for something else.
            Value::Text(text) if text.is_empty() => f.write_str("an empty text"),
            Value::Text(text) if text.parse::<f64>().is_ok() => {
                write!(f, "{}, a text", Quoted(text))
            }
            Value::Text(text) => write!(f, "{}", Quoted(text)),
            Value::List(_) => f.write_str("a list"),
            Value::Map(_) => f.write_str("a mapping"),
        }
    }
}

/// A text as messages quote it: on one line, and not all of it if it is long.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 60;
        let short: String = self.0.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let more = if self.0.chars().count() > MOST { "…" } else { "" };
        write!(f, "`{short}{more}`")
    }
}

// === reading YAML ===

enum Yaml {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Yaml>>),
    Map(Vec<(Spanned<String>, Spanned<Yaml>)>),
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Yaml, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Yaml, E> {
        Ok(Yaml::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Yaml, E> {
        Ok(Yaml::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Yaml, E> {
        Ok(Yaml::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Yaml, E> {
        Number::from_f64(value).map(Yaml::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Yaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Yaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut entries: Vec<(Spanned<String>, Spanned<Yaml>)> = Vec::new();
        let mut keys = HashSet::new();
        while let Some(entry) = map.next_entry::<Spanned<String>, Spanned<Yaml>>()? {
            // The reader compares keys as they are written, and `1` and `"1"` are written differently.
            if !keys.insert(entry.0.value.clone()) {
                return Err(A::Error::custom(format!("the key `{}` is there twice", entry.0.value)));
            }
            entries.push(entry);
        }
        Ok(Yaml::Map(entries))
    }
}
