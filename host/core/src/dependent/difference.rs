//! Collects what differs between two trees and says it in a few words, never with the contents of a Secret (SSA-7).

use serde_json::Value;

use crate::guest::MatchResult;

/// So many differences are told; the rest is counted.
const TOLD: usize = 3;
/// A longer value is cut.
const VALUE: usize = 60;

/// A step down into a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// To a field of a map.
    Key(&'a str),
    /// To an element of a list.
    Index(usize),
}

/// What was found to differ so far, and where the walk stands.
pub(super) struct Differences<'a> {
    /// The way from the root to where the walk stands.
    path: Vec<Step<'a>>,
    /// Under these paths differences do not count.
    ignored: Vec<Vec<String>>,
    /// Whether values may be told.
    secrecy: Secrecy,
    /// The first few, in words.
    told: Vec<String>,
    /// All of them.
    count: usize,
    /// How many trials are going on; differences are only counted then.
    trials: usize,
}

/// A comparison whose outcome is wanted, not its differences.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Trial {
    /// The count before.
    count: usize,
}

/// Whether values may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// They may.
    Open,
    /// They may not: the object is a Secret.
    Secret,
}

impl<'a> Differences<'a> {
    /// Returns an empty collection. `ignore` are JSON pointers under which differences do not count.
    pub(super) fn new<P: AsRef<str>>(secrecy: Secrecy, ignore: &[P]) -> Self {
        let ignored = ignore
            .iter()
            .map(|pointer| segments(pointer.as_ref()))
            .collect();
        Self {
            path: Vec::with_capacity(16),
            ignored,
            secrecy,
            told: Vec::new(),
            count: 0,
            trials: 0,
        }
    }

    /// Steps down.
    pub(super) fn enter(&mut self, step: Step<'a>) {
        self.path.push(step);
    }

    /// Steps up again.
    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    /// Where the walk stands.
    pub(super) fn path(&self) -> &[Step<'a>] {
        &self.path
    }

    /// Whether differences at this place do not count.
    pub(super) fn ignored_here(&self) -> bool {
        self.ignored.iter().any(|ignored| {
            ignored.len() <= self.path.len()
                && ignored
                    .iter()
                    .zip(&self.path)
                    .all(|(name, step)| step.is(name))
        })
    }

    /// Whether two values differ at this place.
    pub(super) fn values(&mut self, found: Option<&Value>, wanted: Option<&Value>) {
        self.tell(|secrecy| match (secrecy, found, wanted) {
            (Secrecy::Secret, Some(_), Some(_)) => "differs".to_owned(),
            (Secrecy::Secret, None, Some(_)) => "is missing".to_owned(),
            (Secrecy::Secret, _, None) => "is no longer wanted".to_owned(),
            (Secrecy::Open, _, Some(wanted)) => {
                format!("found {}, wanted {}", word(found), short(wanted))
            }
            (Secrecy::Open, _, None) => format!("found {}, no longer wanted", word(found)),
        });
    }

    /// Notes a difference that is not one of values.
    pub(super) fn note(&mut self, text: &str) {
        self.tell(|_| text.to_owned());
    }

    /// Begins a comparison whose differences are not to be kept.
    pub(super) fn begin_trial(&mut self) -> Trial {
        self.trials += 1;
        Trial { count: self.count }
    }

    /// Ends a trial, and returns whether nothing differed.
    pub(super) fn end_trial(&mut self, trial: Trial) -> bool {
        let differed = self.count > trial.count;
        self.count = trial.count;
        self.trials -= 1;
        !differed
    }

    /// Returns the verdict: that nothing differs, or what does.
    pub(super) fn verdict(self) -> MatchResult {
        if self.count == 0 {
            return MatchResult::Matches;
        }
        let text = self.told.join("; ");
        MatchResult::Differs(match self.count.saturating_sub(TOLD) {
            0 => text,
            more => format!("{text}; and {more} more"),
        })
    }

    fn tell(&mut self, text: impl FnOnce(Secrecy) -> String) {
        if self.ignored_here() {
            return;
        }
        self.count += 1;
        if self.trials == 0 && self.told.len() < TOLD {
            let told = format!("{}: {}", self.pointer(), text(self.secrecy));
            self.told.push(told);
        }
    }

    fn pointer(&self) -> String {
        if self.path.is_empty() {
            return "the object".to_owned();
        }
        let mut text = String::new();
        for step in &self.path {
            text.push('/');
            match step {
                Step::Key(name) => text.push_str(&name.replace('~', "~0").replace('/', "~1")),
                Step::Index(index) => text.push_str(&index.to_string()),
            }
        }
        text
    }
}

impl Step<'_> {
    fn is(self, segment: &str) -> bool {
        match self {
            Self::Key(name) => name == segment,
            Self::Index(index) => segment.parse() == Ok(index),
        }
    }
}

/// Returns the names in a JSON pointer; the empty one has none.
fn segments(pointer: &str) -> Vec<String> {
    let names = pointer.strip_prefix('/').map(|rest| rest.split('/'));
    names
        .into_iter()
        .flatten()
        .map(|name| name.replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn word(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), short)
}

/// Returns the JSON text of a value, cut if it is long.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn three_differences_are_told_and_the_rest_is_counted() {
        let mut differences = Differences::new::<&str>(Secrecy::Open, &[]);
        for index in 0..5 {
            differences.enter(Step::Key("a/b"));
            differences.enter(Step::Index(index));
            differences.values(Some(&json!(1)), None);
            differences.leave();
            differences.leave();
        }
        let text = "/a~1b/0: found 1, no longer wanted; /a~1b/1: found 1, no longer wanted; \
                    /a~1b/2: found 1, no longer wanted; and 2 more";
        assert_eq!(differences.verdict(), MatchResult::Differs(text.to_owned()));
    }

    #[test]
    fn values_of_a_secret_are_never_told() {
        // SSA-7
        let mut differences = Differences::new::<&str>(Secrecy::Secret, &[]);
        differences.enter(Step::Key("password"));
        let (old, new) = (json!("hunter2"), json!("hunter3"));
        differences.values(Some(&old), Some(&new));
        differences.values(None, Some(&new));
        differences.values(Some(&old), None);
        let text = "/password: differs; /password: is missing; /password: is no longer wanted";
        assert_eq!(differences.verdict(), MatchResult::Differs(text.to_owned()));
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let mut differences = Differences::new::<&str>(Secrecy::Open, &[]);
        differences.values(Some(&json!("ü".repeat(100))), Some(&json!(1)));
        let text = format!("the object: found \"{}…, wanted 1", "ü".repeat(59));
        assert_eq!(differences.verdict(), MatchResult::Differs(text));
    }

    #[test]
    #[rustfmt::skip]
    fn what_is_ignored_covers_all_below_it_and_nothing_beside() {
        let mut differences = Differences::new(Secrecy::Open, &["/spec/a~1b/0"]);
        for (steps, counts) in [
            (vec![Step::Key("spec"), Step::Key("a/b"), Step::Index(0)], false),
            (vec![Step::Key("spec"), Step::Key("a/b"), Step::Index(0), Step::Key("x")], false),
            (vec![Step::Key("spec"), Step::Key("a/b"), Step::Index(1)], true),
            (vec![Step::Key("spec"), Step::Key("a/bc")], true),
            (vec![Step::Key("spec")], true),
        ] {
            differences.path = steps;
            assert_eq!(
                !differences.ignored_here(),
                counts,
                "{:?}",
                differences.path
            );
        }
    }
}
