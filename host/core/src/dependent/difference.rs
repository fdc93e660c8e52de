//! Collects the differences between two trees and describes them in a few words, never with the contents of a Secret
//! (SSA-7).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::Value;

use crate::budget::{self, Budget, Exceeded};
use crate::guest::MatchResult;

/// Differences that are listed; further ones are only counted.
const TOLD: usize = 3;
/// Characters after which a longer value is cut.
const VALUE: usize = 60;

/// Characters after which a longer path is cut.
const PATH: usize = 300;

/// A step down into a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// To a field of a map.
    Key(&'a str),
    /// To an element of a list.
    Index(usize),
}

/// The differences found so far, and the position of the walk.
pub(super) struct Differences<'a, 'b> {
    /// The budget that the walk has left.
    budget: &'b mut Budget,
    /// The path from the root to the current position.
    path: Vec<Step<'a>>,
    /// The paths under which differences do not count.
    ignored: Ignored,
    /// For each position on the path its relation to the ignored paths, the root first.
    places: Vec<Place>,
    /// Whether values may be shown.
    secrecy: Secrecy,
    /// The first few differences, in words.
    told: Vec<String>,
    /// The number of all differences.
    count: usize,
    /// The number of nested trials; the first difference ends one.
    trials: usize,
    /// Set if reading the ignored paths costs too much.
    unread: Option<Exceeded>,
}

/// The reasons for which a walk ends early.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// A difference was found in a trial, which needs only the first one.
    Differs,
    /// The walk would cost too much.
    Exceeded(Exceeded),
}

/// The end of a walk: `Ok` if it has seen everything.
pub(super) type Walked = Result<(), Stop>;

/// About how many bytes a step of an ignored path takes in memory.
const NODE: usize = 512;

/// Paths under which differences do not count, as a tree of their steps.
struct Ignored(Vec<Node>);

/// A step on such a path.
#[derive(Default)]
struct Node {
    below: BTreeMap<String, usize>,
    /// True if a path ends here.
    ends: bool,
}

/// The relation of a position to the ignored paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Above something ignored, at this node.
    Above(usize),
    /// Ignored.
    Ignored,
    /// Neither.
    Beside,
}

/// Whether values may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// They may be shown.
    Open,
    /// They may not be shown: the object is a Secret.
    Secret,
}

impl From<Exceeded> for Stop {
    fn from(exceeded: Exceeded) -> Self {
        Self::Exceeded(exceeded)
    }
}

impl Ignored {
    fn new<P: AsRef<str>>(pointers: &[P], budget: &mut Budget) -> Result<Self, Exceeded> {
        let mut nodes = vec![Node::default()];
        for pointer in pointers {
            budget.text(pointer.as_ref().len())?;
            let mut at = 0;
            for name in segments(pointer.as_ref()) {
                budget.step(1)?;
                let next = nodes.len();
                at = nodes.get_mut(at).map_or(0, |node| *node.below.entry(name).or_insert(next));
                if at == next {
                    budget.hold(NODE)?;
                    nodes.push(Node::default());
                }
            }
            if let Some(node) = nodes.get_mut(at) {
                node.ends = true;
            }
        }
        Ok(Self(nodes))
    }

    fn place(&self, at: usize) -> Place {
        match self.0.get(at) {
            Some(node) if node.ends => Place::Ignored,
            Some(node) if node.below.is_empty() => Place::Beside,
            Some(_) => Place::Above(at),
            None => Place::Beside,
        }
    }

    fn below(&self, place: Place, step: Step<'_>) -> Place {
        let Place::Above(at) = place else {
            return place;
        };
        let next = self.0.get(at).and_then(|node| match step {
            Step::Key(name) => node.below.get(name),
            Step::Index(index) => node.below.get(&index.to_string()),
        });
        next.map_or(Place::Beside, |&next| self.place(next))
    }
}

impl<'a, 'b> Differences<'a, 'b> {
    /// Returns an empty collection. `ignore` are JSON pointers under which differences do not count.
    pub(super) fn new<P: AsRef<str>>(secrecy: Secrecy, ignore: &[P], budget: &'b mut Budget) -> Self {
        let (ignored, unread) = match Ignored::new(ignore, budget) {
            Ok(ignored) => (ignored, None),
            Err(exceeded) => (Ignored(Vec::new()), Some(exceeded)),
        };
        let mut places = Vec::with_capacity(16);
        places.push(ignored.place(0));
        Self {
            budget,
            unread,
            path: Vec::with_capacity(16),
            ignored,
            places,
            secrecy,
            told: Vec::new(),
            count: 0,
            trials: 0,
        }
    }

    /// Steps down, which costs a step of the budget.
    ///
    /// # Errors
    /// If the budget is spent; then the position stays the same.
    pub(super) fn enter(&mut self, step: Step<'a>) -> Walked {
        self.pay(1)?;
        self.places.push(self.ignored.below(self.here(), step));
        self.path.push(step);
        Ok(())
    }

    /// Steps up again.
    pub(super) fn leave(&mut self) {
        self.path.pop();
        self.places.pop();
    }

    /// Pays for work other than a step down.
    ///
    /// # Errors
    /// If the budget is spent.
    pub(super) fn pay(&mut self, steps: usize) -> Walked {
        Ok(self.budget.step(u64::try_from(steps).unwrap_or(u64::MAX))?)
    }

    /// Reads a document that is part of the comparison.
    ///
    /// # Errors
    /// If it is not JSON, or too large.
    pub(super) fn read(&mut self, text: &str) -> Result<Value, budget::Error> {
        self.budget.read(text)
    }

    /// Returns the current position.
    pub(super) fn path(&self) -> &[Step<'a>] {
        &self.path
    }

    /// Adds the difference of two values at the current position.
    pub(super) fn values(&mut self, found: Option<&Value>, wanted: Option<&Value>) -> Walked {
        self.tell(|secrecy| match (secrecy, found, wanted) {
            (Secrecy::Secret, Some(_), Some(_)) => "differs".to_owned(),
            (Secrecy::Secret, None, Some(_)) => "is missing".to_owned(),
            (Secrecy::Secret, _, None) => "is no longer wanted".to_owned(),
            (Secrecy::Open, _, Some(wanted)) => {
                format!("found {}, wanted {}", word(found), short(wanted))
            }
            (Secrecy::Open, _, None) => format!("found {}, no longer wanted", word(found)),
        })
    }

    /// Adds a difference that is not one of values.
    pub(super) fn note(&mut self, text: &str) -> Walked {
        self.tell(|_| text.to_owned())
    }

    /// Begins a trial: a comparison that ends at its first difference and keeps none.
    pub(super) fn begin_trial(&mut self) {
        self.trials += 1;
    }

    /// Returns true during a trial.
    pub(super) fn is_trial(&self) -> bool {
        self.trials > 0
    }

    /// Ends a trial and returns true if nothing differed.
    ///
    /// # Errors
    /// If the budget is spent.
    pub(super) fn end_trial(&mut self, walked: Walked) -> Result<bool, Stop> {
        self.trials -= 1;
        match walked {
            Ok(()) => Ok(true),
            Err(Stop::Differs) => Ok(false),
            Err(exceeded @ Stop::Exceeded(_)) => Err(exceeded),
        }
    }

    /// Returns the verdict of a walk: a match, or the differences. Objects that are too large to be compared count as
    /// different.
    pub(super) fn verdict(self, walked: Walked) -> MatchResult {
        let exceeded = match walked {
            Err(Stop::Exceeded(exceeded)) => Some(exceeded),
            _ => self.unread,
        };
        if let Some(exceeded) = exceeded {
            return MatchResult::Differs(format!("too large to compare: {exceeded}"));
        }
        if self.count == 0 {
            return MatchResult::Matches;
        }
        let text = self.told.join("; ");
        MatchResult::Differs(match self.count.saturating_sub(TOLD) {
            0 => text,
            more => format!("{text}; and {more} more"),
        })
    }

    fn here(&self) -> Place {
        self.places.last().copied().unwrap_or(Place::Beside)
    }

    fn tell(&mut self, text: impl FnOnce(Secrecy) -> String) -> Walked {
        if self.here() == Place::Ignored {
            return Ok(());
        }
        if self.trials > 0 {
            return Err(Stop::Differs);
        }
        self.count += 1;
        if self.told.len() < TOLD {
            let told = format!("{}: {}", self.pointer(), text(self.secrecy));
            self.told.push(told);
        }
        Ok(())
    }

    fn pointer(&self) -> String {
        if self.path.is_empty() {
            return "the object".to_owned();
        }
        let mut text = Short::new(PATH);
        for step in &self.path {
            // The rest of a longer path is cut.
            let _cut = match step {
                Step::Key(name) => write!(text, "/{}", name.replace('~', "~0").replace('/', "~1")),
                Step::Index(index) => write!(text, "/{index}"),
            };
        }
        text.finish()
    }
}

/// Returns the names in a JSON pointer; the empty pointer has none.
fn segments(pointer: &str) -> impl Iterator<Item = String> {
    let names = pointer.strip_prefix('/').map(|rest| rest.split('/'));
    names.into_iter().flatten().map(|name| name.replace("~1", "/").replace("~0", "~"))
}

fn word(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), short)
}

/// Returns the JSON text of a value, cut if it is long; the rest of the text is never made.
fn short(value: &Value) -> String {
    let mut text = Short::new(VALUE);
    // An error only means that the text is cut.
    let _cut = write!(text, "{value}");
    text.finish()
}

/// A text of bounded length, in characters.
struct Short {
    text: String,
    left: usize,
    cut: bool,
}

impl Short {
    fn new(most: usize) -> Self {
        Self { text: String::new(), left: most, cut: false }
    }

    fn finish(mut self) -> String {
        if self.cut {
            self.text.push('…');
        }
        self.text
    }
}

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.cut {
            return Err(fmt::Error);
        }
        let Some((end, _)) = text.char_indices().nth(self.left) else {
            self.left -= text.chars().count();
            self.text.push_str(text);
            return Ok(());
        };
        self.text.push_str(text.get(..end).unwrap_or_default());
        self.cut = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the verdict after `act`.
    fn verdict(secrecy: Secrecy, act: impl for<'a> FnOnce(&mut Differences<'a, '_>) -> Walked) -> MatchResult {
        let mut budget = Budget::of(1000);
        let mut differences = Differences::new::<&str>(secrecy, &[], &mut budget);
        let walked = act(&mut differences);
        differences.verdict(walked)
    }

    #[test]
    fn three_differences_are_told_and_the_rest_is_counted() {
        let verdict = verdict(Secrecy::Open, |differences| {
            for index in 0..5 {
                differences.enter(Step::Key("a/b"))?;
                differences.enter(Step::Index(index))?;
                differences.values(Some(&json!(1)), None)?;
                differences.leave();
                differences.leave();
            }
            Ok(())
        });
        let text = "/a~1b/0: found 1, no longer wanted; /a~1b/1: found 1, no longer wanted; \
                    /a~1b/2: found 1, no longer wanted; and 2 more";
        assert_eq!(verdict, MatchResult::Differs(text.to_owned()));
    }

    #[test]
    fn values_of_a_secret_are_never_told() {
        // SSA-7
        let verdict = verdict(Secrecy::Secret, |differences| {
            differences.enter(Step::Key("password"))?;
            let (old, new) = (json!("hunter2"), json!("hunter3"));
            differences.values(Some(&old), Some(&new))?;
            differences.values(None, Some(&new))?;
            differences.values(Some(&old), None)
        });
        let text = "/password: differs; /password: is missing; /password: is no longer wanted";
        assert_eq!(verdict, MatchResult::Differs(text.to_owned()));
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let verdict =
            verdict(Secrecy::Open, |differences| differences.values(Some(&json!("ü".repeat(100))), Some(&json!(1))));
        let text = format!("the object: found \"{}…, wanted 1", "ü".repeat(59));
        assert_eq!(verdict, MatchResult::Differs(text));
    }

    #[test]
    fn what_costs_too_much_to_compare_differs() {
        let verdict = verdict(Secrecy::Open, |differences| differences.pay(1001));
        let text = "too large to compare: it takes more than 1000 steps";
        assert_eq!(verdict, MatchResult::Differs(text.to_owned()));
    }

    #[test]
    #[rustfmt::skip]
    fn what_is_ignored_covers_all_below_it_and_nothing_beside() {
        for (steps, ignored) in [
            (vec![Step::Key("spec"), Step::Key("a/b"), Step::Index(0)], true),
            (vec![Step::Key("spec"), Step::Key("a/b"), Step::Index(0), Step::Key("x")], true),
            (vec![Step::Key("spec"), Step::Key("a/b"), Step::Index(1)], false),
            (vec![Step::Key("spec"), Step::Key("a/bc")], false),
            (vec![Step::Key("spec"), Step::Key("n"), Step::Key("m")], true),
            (vec![Step::Key("spec")], false),
        ] {
            let mut budget = Budget::of(1000);
            let ignore = ["/spec/a~1b/0", "/spec/n", "/spec/n/m/deeper"];
            let mut differences = Differences::new(Secrecy::Open, &ignore, &mut budget);
            for step in &steps {
                differences.enter(*step).unwrap();
            }
            differences.note("differs").unwrap();
            assert_eq!(differences.count == 0, ignored, "{steps:?}");
        }
    }
}
