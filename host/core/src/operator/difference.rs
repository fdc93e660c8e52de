//! Decides what is told of a version of an operator, or of a component, beside another one, and what of that is more than there was (`AP-1`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::wants::{Amount, Field, Rank, Thing, Want, Wants, reaches_out};
use crate::text::said_within;

/// The most lines that are told, and the most bytes of a name.
const LINES: usize = 50;
const NAME: usize = 200;

/// What is otherwise in a version than in the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Whether it wants more.
    pub wants_more: bool,
    /// What is otherwise; what is more comes first. At most 50 lines.
    pub lines: Vec<Line>,
    /// How many lines there are besides.
    pub left_out: usize,
}

/// One thing that is otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Whose: `plugin web`, `controller pages`, `operator`; empty where two components are compared.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// What: a right, a limit, `import`, `export`, `name`, `contract` or `size`.
    pub what: String,
    /// What there was; `None`: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What there is; `None`: nothing any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// In what the two are counted; empty: they are not, or by themselves.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unit: &'static str,
    /// Whether that is more than there was.
    pub more: bool,
}

/// Returns what is otherwise in a version than in the one before. Of what was not there before, only that is told which is more.
pub fn difference(before: &Wants, after: &Wants) -> Difference {
    let fields: BTreeSet<&Field> = before.0.keys().chain(after.0.keys()).collect();
    let mut lines = Vec::new();
    for field in fields {
        let found = match (before.0.get(field), after.0.get(field)) {
            (Some(Want::These(before)), Some(Want::These(after))) => things(before, after),
            (None, Some(Want::These(after))) => things(&BTreeSet::new(), after),
            (Some(Want::These(before)), None) => things(before, &BTreeSet::new()),
            (Some(Want::AtMost(before)), Some(Want::AtMost(after))) => amount(field, before, (before.most, after.most)),
            (None, Some(Want::AtMost(after))) if field.rank == Rank::Given => {
                amount(field, after, (after.usual, after.most))
            }
            (Some(Want::AtMost(before)), None) if field.rank == Rank::Given => {
                amount(field, before, (before.most, before.usual))
            }
            (Some(Want::Names(before)), Some(Want::Names(after))) => names(field, before, after),
            (None, Some(Want::Names(after))) if field.rank == Rank::Import => {
                let mut lines = names(field, &BTreeMap::new(), after);
                lines.retain(|found| found.more);
                lines
            }
            (Some(Want::Text(before)), Some(Want::Text(after))) if before != after => {
                vec![Found { before: Some(before.clone()), after: Some(after.clone()), ..Found::default() }]
            }
            (Some(_) | None, Some(_) | None) => Vec::new(),
        };
        lines.extend(found.into_iter().map(|found| found.of(field)));
    }
    lines.sort_by_key(|line| !line.more);
    let left_out = lines.len().saturating_sub(LINES);
    let wants_more = lines.first().is_some_and(|line| line.more);
    lines.truncate(LINES);
    Difference { wants_more, lines, left_out }
}

/// What is otherwise of a field.
#[derive(Default)]
struct Found {
    before: Option<String>,
    after: Option<String>,
    unit: &'static str,
    more: bool,
}

impl Found {
    fn of(self, field: &Field) -> Line {
        let short = |text: String| said_within(&text, NAME).into_owned();
        let Self { before, after, unit, more } = self;
        let (of, what) = (short(field.of.clone()), short(field.what.clone()));
        Line { of, what, before: before.map(short), after: after.map(short), unit, more }
    }
}

fn things(before: &BTreeSet<Thing>, after: &BTreeSet<Thing>) -> Vec<Found> {
    let come = after.iter().filter(|thing| !before.contains(thing)).map(|thing| Found {
        after: Some(thing.to_string()),
        more: !before.iter().any(|before| before.covers(thing)),
        ..Found::default()
    });
    let gone = before.iter().filter(|thing| !after.contains(thing));
    come.chain(gone.map(|thing| Found { before: Some(thing.to_string()), ..Found::default() })).collect()
}

fn amount(field: &Field, Amount { unit, .. }: &Amount, (before, after): (Option<u64>, Option<u64>)) -> Vec<Found> {
    if before == after {
        return Vec::new();
    }
    let shown = |most: Option<u64>| Some(most.map_or_else(|| "unlimited".to_owned(), |most| most.to_string()));
    let raised = before.is_some_and(|before| after.is_none_or(|after| after > before));
    let more = raised && field.rank == Rank::Given;
    vec![Found { before: shown(before), after: shown(after), unit, more }]
}

fn names(field: &Field, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<Found> {
    let whole =
        |name: &str, version: &str| Some(format!("{name}{}{version}", if version.is_empty() { "" } else { "@" }));
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone.map(|(name, version)| Found { before: whole(name, version), ..Found::default() });
    let come = after.iter().filter_map(|(name, version)| match before.get(name) {
        None => {
            let more = field.rank == Rank::Import && reaches_out(name);
            Some(Found { after: whole(name, version), more, ..Found::default() })
        }
        Some(before) if before == version => None,
        Some(before) => Some(Found { before: whole(name, before), after: Some(version.clone()), ..Found::default() }),
    });
    come.chain(gone).collect()
}

// === impl Difference ===

impl Difference {
    /// Returns it line by line, at most `most` of them, and how many more there are.
    pub fn texts(&self, most: usize) -> Vec<String> {
        let mut texts: Vec<String> = self.lines.iter().take(most).map(ToString::to_string).collect();
        let more = self.lines.len().saturating_sub(most) + self.left_out;
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        texts
    }

    /// Returns it line by line.
    pub fn all(&self) -> Vec<String> {
        self.texts(LINES)
    }

    /// Whether nothing is otherwise.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Line {
    /// Writes `import + NAME`, `import - NAME`, `import NAME 1.0 → 1.1`, `plugin web: patch v1 Secret in + all namespaces (more)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, what, before, after, unit, more } = self;
        if !of.is_empty() {
            write!(f, "{of}: ")?;
        }
        match (before, after) {
            (Some(before), Some(after)) => write!(f, "{what} {before} → {after}")?,
            (Some(before), None) => write!(f, "{what} - {before}")?,
            (None, Some(after)) => write!(f, "{what} + {after}")?,
            (None, None) => f.write_str(what)?,
        }
        if !unit.is_empty() {
            write!(f, " {unit}")?;
        }
        f.write_str(if *more { " (more)" } else { "" })
    }
}

#[cfg(test)]
mod tests;
