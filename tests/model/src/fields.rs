//! Decides which fields are in a set of fields: the sets of `managedFields`, as `fieldsV1` writes them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// One step of a path, as `fieldsV1` writes it: `f:data`, `k:{"name":"a"}`, `v:"example.com/x"`.
pub(crate) type Step = String;

/// A set of paths. A path in it says nothing about those that begin with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(BTreeMap<Step, Node>);

/// Tells if the path that ends here is in the set, and which longer ones are. At least one path is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    below: Fields,
}

/// Returns the step into a field.
pub(crate) fn field(name: &str) -> Step {
    format!("f:{name}")
}

impl Fields {
    /// Returns the set of these paths; each is a list of names of fields.
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut fields = Self::default();
        for path in paths {
            let steps: Vec<Step> = path.iter().map(|name| field(name)).collect();
            fields.insert(&steps);
        }
        fields
    }

    /// Reads `fieldsV1`.
    pub(crate) fn read(json: &Value) -> Self {
        let mut fields = Self::default();
        for (step, below) in json.as_object().into_iter().flatten() {
            if step == "." {
                continue;
            }
            let entries = below.as_object();
            let member = entries.is_none_or(|entries| entries.is_empty() || entries.contains_key("."));
            let below = Self::read(below);
            fields.0.insert(step.clone(), Node { member, below });
        }
        fields
    }

    /// Returns the set as `fieldsV1`.
    pub(crate) fn write(&self) -> Value {
        let mut json = Map::new();
        for (step, Node { member, below }) in &self.0 {
            let mut inner = below.write();
            if let Some(inner) = inner.as_object_mut().filter(|_| *member && !below.is_empty()) {
                inner.insert(".".to_owned(), json!({}));
            }
            json.insert(step.clone(), inner);
        }
        Value::Object(json)
    }

    /// Returns true if it has no path.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a path. The empty path, of the whole object, is never in a set.
    pub(crate) fn insert(&mut self, path: &[Step]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let node = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    /// Returns true if it has the path of this one step.
    pub(crate) fn has(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|node| node.member)
    }

    /// Returns the set of its paths below a step; `None` if there are none.
    pub(crate) fn below(&self, step: &str) -> Option<&Self> {
        let node = self.0.get(step)?;
        (!node.below.is_empty()).then_some(&node.below)
    }

    /// Returns the paths in one or the other set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (step, node) in &other.0 {
            let mine = all.0.entry(step.clone()).or_default();
            mine.member |= node.member;
            mine.below = mine.below.union(&node.below);
        }
        all
    }

    /// Returns the paths in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.each(|step, node| {
            let theirs = other.0.get(step)?;
            Some(Node { member: node.member && theirs.member, below: node.below.intersection(&theirs.below) })
        })
    }

    /// Returns the paths that are not in `other`.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.each(|step, node| {
            let Some(theirs) = other.0.get(step) else {
                return Some(node.clone());
            };
            Some(Node { member: node.member && !theirs.member, below: node.below.difference(&theirs.below) })
        })
    }

    /// Returns the paths that are neither in `other` nor below a path in it.
    pub(crate) fn outside(&self, other: &Self) -> Self {
        self.each(|step, node| match other.0.get(step) {
            None => Some(node.clone()),
            Some(theirs) if theirs.member => None,
            Some(theirs) => Some(Node { member: node.member, below: node.below.outside(&theirs.below) }),
        })
    }

    /// Returns the set with each step replaced by the result of `change`.
    pub(crate) fn map_below(&self, mut change: impl FnMut(&Step, bool, &Self) -> (bool, Self)) -> Self {
        self.each(|step, Node { member, below }| {
            let (member, below) = change(step, *member, below);
            Some(Node { member, below })
        })
    }

    /// Returns all paths, as messages write them: `.data.a`, `.spec.ports[port=80,protocol="TCP"].name`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.paths_after("", &mut paths);
        paths
    }

    fn paths_after(&self, before: &str, paths: &mut Vec<String>) {
        for (step, Node { member, below }) in &self.0 {
            let path = format!("{before}{}", shown(step));
            if *member {
                paths.push(path.clone());
            }
            below.paths_after(&path, paths);
        }
    }

    fn each(&self, mut change: impl FnMut(&Step, &Node) -> Option<Node>) -> Self {
        let changed = self.0.iter().filter_map(|(step, node)| {
            let node = change(step, node)?;
            (node.member || !node.below.is_empty()).then(|| (step.clone(), node))
        });
        Self(changed.collect())
    }
}

/// Returns a step as messages write it.
fn shown(step: &str) -> String {
    let Some((kind, rest)) = step.split_once(':') else {
        return step.to_owned();
    };
    match kind {
        "f" => format!(".{rest}"),
        "v" => format!("[={rest}]"),
        "k" => {
            let keys: Value = serde_json::from_str(rest).unwrap_or_default();
            let keys = keys.as_object().cloned().unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{rest}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_v1_are_read_and_written_as_they_are() {
        let json = json!({ "f:data": { ".": {}, "f:a": {} }, "f:x": { "k:{\"name\":\"a\"}": { ".": {}, "f:name": {} }, "v:1": {} } });
        assert_eq!(Fields::read(&json).write(), json);
        let paths = [".data", ".data.a", ".x[name=\"a\"]", ".x[name=\"a\"].name", ".x[=1]"];
        assert_eq!(Fields::read(&json).paths(), paths);
    }

    #[test]
    fn a_path_in_a_set_says_nothing_of_those_below() {
        let both = Fields::of(&[&["a"], &["a", "b"]]);
        let one = Fields::of(&[&["a"]]);
        assert_eq!(both.difference(&one), Fields::of(&[&["a", "b"]]));
        assert_eq!(both.intersection(&one), one);
        assert_eq!(both.outside(&one), Fields::default());
        assert_eq!(one.union(&Fields::of(&[&["a", "b"]])), both);
    }
}
