//! Decides which changes matter to a controller: by headers, by what the user asks in CEL, and of which the component has to be
//! asked (CF, IS).
//!
//! Filters suppress events only: caches and indexes hold every object (`IS-3`).

use std::sync::Arc;

use serde_json::Value;

use super::callback::{self, Asked, Callback, Problem, questions, read};
use crate::cel::Expression;
use crate::manifest::Filters;
use crate::manifest::filters::{OBJECT, OLD_OBJECT, Question, UNKNOWN};
use crate::object::{Change, Header, Object, hold};

/// The filter of one source: built-in rules, and what the user asks. Both must accept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `None` for secondaries.
    primary: Option<PrimaryFilter>,
    user: Filters,
}

/// The filter of primaries (`CF-2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryFilter {
    /// True if updates that do not change the generation are ignored.
    pub generation_aware: bool,
    /// The controller's finalizer, if something needs cleanup.
    pub finalizer: Option<Arc<str>>,
}

/// What a change stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// One change, or several of its sort.
    One,
    /// Several of different sorts: no question about one sort decides.
    Mixed,
}

/// What a filter says of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    /// It does not matter.
    No,
    /// It matters if the component says so to all of these: fields of the manifest, and the names that they give.
    IfSaid(Vec<(&'static str, &'a Arc<str>)>),
}

// === impl Filter ===

impl Filter {
    /// Returns the filter of a primary source.
    pub fn primary(built_in: PrimaryFilter, user: Filters) -> Self {
        Self { primary: Some(built_in), user }
    }

    /// Returns the filter of a secondary source: only what the user asks counts (`IS-1`). The default accepts
    /// everything.
    pub fn secondary(user: Filters) -> Self {
        Self { primary: None, user }
    }

    /// Returns true if the change matters, as far as that is known without the component. A question that has no answer is
    /// passed to `asked`, and counts as answered with yes: an event too many does no harm.
    pub fn accepts(&self, change: &Change, asked: Asked<'_>) -> bool {
        self.judge(change, Sort::One, asked) != Verdict::No
    }

    /// Returns whether the change matters, and of what the component has to be asked for that. If it stands for several, no rule about
    /// updates decides: what has gone and come back counts, although it may look as it did.
    pub(super) fn judge(&self, change: &Change, sort: Sort, asked: Asked<'_>) -> Verdict<'_> {
        match &self.primary {
            Some(filter) if is_awaited(change, filter.finalizer.as_deref()) => Verdict::IfSaid(Vec::new()),
            Some(filter) if sort == Sort::One && !accepts(change, filter) => Verdict::No,
            Some(_) | None => self.ask(change, sort, asked),
        }
    }

    /// Returns true if a change matters of which not all is there any more: by the headers alone, whatever the user asks (`BC-1`).
    pub(super) fn accepts_unseen(&self, change: &Change, sort: Sort) -> bool {
        self.primary.as_ref().is_none_or(|filter| {
            sort != Sort::One || is_awaited(change, filter.finalizer.as_deref()) || accepts(change, filter)
        })
    }

    /// Returns true if the user asks anything.
    pub(super) fn is_costly(&self) -> bool {
        self.user != Filters::default()
    }

    /// Returns the filters of the user.
    pub fn user(&self) -> &Filters {
        &self.user
    }

    /// Returns what the user's questions say of a change.
    fn ask(&self, change: &Change, sort: Sort, asked: Asked<'_>) -> Verdict<'_> {
        let (field, specific) = match change {
            Change::Added(_) => ("onAdd", &self.user.on_add),
            Change::Updated { .. } => ("onUpdate", &self.user.on_update),
            Change::Deleted { .. } => ("onDelete", &self.user.on_delete),
        };
        let specific = specific.as_ref().filter(|_| sort == Sort::One);
        let _questions = questions();
        let mut exports = Vec::new();
        for (field, question) in [(field, specific), ("generic", self.user.generic.as_ref())] {
            match question {
                None => {}
                Some(Question::Export(name)) => exports.push((field, name)),
                Some(Question::Cel(cel)) => {
                    let holds = holds(cel, change).unwrap_or_else(|problem| {
                        asked.tell(Callback::Filter, field, change.object().key(), &problem);
                        true
                    });
                    if !holds {
                        return Verdict::No;
                    }
                }
            }
        }
        Verdict::IfSaid(exports)
    }
}

/// Returns true if the daemon itself waits for a change of a primary, so that no user can filter it: that it is gone
/// (`CF-4`) or another object, that its finalizer was added (`DI-4`), that it is to be deleted, for whichever finalizer
/// holds it back, that its pause ends (`PA-3`).
fn is_awaited(change: &Change, finalizer: Option<&str>) -> bool {
    match change {
        Change::Added(object) => object.header().deleting,
        Change::Deleted { .. } => true,
        Change::Updated { old, new } => {
            let (old, new) = (old.header(), new.header());
            let ours = |header: &Header| finalizer.is_some_and(|name| header.has_finalizer(name));
            let protected = ours(new) && !ours(old);
            old.uid != new.uid || is_paused_otherwise(old, new) || protected || (new.deleting && !old.deleting)
        }
    }
}

/// Returns what a question says of a change.
fn holds(question: &Expression, change: &Change) -> Result<bool, Problem> {
    let tree = |variable, object: &Object| {
        if question.reads(variable) { read(object) } else { Ok(Arc::new(Value::Null)) }
    };
    let object = tree(OBJECT, change.object())?;
    let (name, other) = match change {
        Change::Added(_) => (OLD_OBJECT, Arc::new(Value::Null)),
        Change::Updated { old, .. } => (OLD_OBJECT, tree(OLD_OBJECT, old)?),
        Change::Deleted { unknown, .. } => (UNKNOWN, Arc::new(Value::Bool(*unknown))),
    };
    callback::holds(question, &[(OBJECT, &object), (name, &other)])
}

/// Returns true if a change of a primary matters by the built-in rules: every addition (`CF-1`) and deletion
/// (`CF-4`), and updates that concern the generation, the mark for deletion, the finalizer
/// (`CF-2`) or the pause (`PA-3`).
pub fn accepts(change: &Change, filter: &PrimaryFilter) -> bool {
    match change {
        Change::Added(_) | Change::Deleted { .. } => true,
        Change::Updated { old, new } => accepts_update(old.header(), new.header(), filter),
    }
}

fn accepts_update(old: &Header, new: &Header, filter: &PrimaryFilter) -> bool {
    let PrimaryFilter { generation_aware, finalizer } = filter;
    // A list can show an object that was deleted and made again as an update; its generation then says nothing.
    let made_again = old.uid != new.uid;
    // (a)
    let unprotected = finalizer.as_ref().is_some_and(|name| !(old.has_finalizer(name) && new.has_finalizer(name)));
    // (b); kinds without generations have nothing to compare (CF-7).
    let changed = !generation_aware || old.generation.is_none() || old.generation < new.generation;
    // (c)
    let marked = !old.deleting && new.deleting;
    // PA-3: nothing else tells of it, for annotations leave the generation as it is.
    let paused = is_paused_otherwise(old, new);
    made_again || unprotected || changed || marked || paused
}

/// Returns true if a primary is paused or held otherwise than before.
fn is_paused_otherwise(old: &Header, new: &Header) -> bool {
    old.paused != new.paused || hold::passed_on(old.held.as_deref(), new.held.as_deref())
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::object::{Gvk, Managers};
    use crate::source::callback::Faults;

    fn object(metadata: &str) -> Object {
        let json = format!(r#"{{"metadata":{{"name":"a",{metadata}}}}}"#);
        Object::parse(&json, &Gvk::parse("x.dev/v1", "X").unwrap(), &Managers::default()).unwrap()
    }

    fn updated(old: &str, new: &str) -> Change {
        Change::Updated { old: object(old), new: object(new) }
    }

    const PLAIN: &str = r#""generation":1"#;
    const LABELLED: &str = r#""generation":1,"labels":{"a":"b"}"#;
    const PROTECTED: &str = r#""generation":1,"finalizers":["x.dev/f"]"#;
    const PAUSED: &str = r#""generation":1,"annotations":{"capstan.dev/paused":"true"}"#;
    const MARKED: &str = r#""generation":1,"deletionTimestamp":"t""#;

    fn built_in(generation_aware: bool, finalizer: Option<&str>) -> PrimaryFilter {
        PrimaryFilter { generation_aware, finalizer: finalizer.map(Arc::from) }
    }

    #[test]
    fn an_update_passes_while_the_finalizer_is_not_on_both_versions() {
        // CF-2 (a)
        for (finalizer, old, new, accepted) in [
            (Some("x.dev/f"), PROTECTED, PROTECTED, false),
            (Some("x.dev/f"), PLAIN, PROTECTED, true),
            (Some("x.dev/f"), PROTECTED, PLAIN, true),
            (Some("x.dev/f"), PLAIN, PLAIN, true),
            (None, PLAIN, PROTECTED, false),
        ] {
            let case = format!("{finalizer:?}: {old} to {new}");
            assert_eq!(accepts(&updated(old, new), &built_in(true, finalizer)), accepted, "{case}");
        }
    }

    #[test]
    fn an_update_passes_with_a_new_generation_or_a_mark() {
        // CF-2 (b) (c), CF-7, PA-3; AE-5: with no finalizer, as in all-events mode
        let generation = |number: u64| format!(r#""generation":{number}"#);
        let none = r#""labels":{}"#;
        let made_again = [r#""generation":5,"uid":"1""#, r#""generation":1,"uid":"2""#];
        for (case, aware, old, new, accepted) in [
            ("only a label", true, PLAIN, LABELLED, false),
            ("generations do not count", false, PLAIN, LABELLED, true),
            ("a kind without", true, none, none, true),
            ("the first", true, none, PLAIN, true),
            ("a newer one", true, &*generation(9), &*generation(10), true),
            ("an older one", true, &*generation(10), &*generation(9), false),
            ("marked", true, PLAIN, MARKED, true),
            ("marked before", true, MARKED, MARKED, false),
            ("made again", true, made_again[0], made_again[1], true),
            ("paused", true, PLAIN, PAUSED, true),
            ("paused as before", true, PAUSED, PAUSED, false),
            ("not paused any more", true, PAUSED, PLAIN, true),
        ] {
            assert_eq!(accepts(&updated(old, new), &built_in(aware, None)), accepted, "{case}");
        }
    }

    /// Returns an addition, an update that changes only a label, one that changes the generation, and a deletion.
    fn changes() -> [Change; 4] {
        let deleted = Change::Deleted { last: object(PLAIN), unknown: true };
        let generation = updated(PLAIN, r#""generation":2"#);
        [Change::Added(object(PLAIN)), updated(PLAIN, LABELLED), generation, deleted]
    }

    fn cel(text: &str) -> Option<Question> {
        Expression::parse(text, &[OBJECT, OLD_OBJECT, UNKNOWN]).ok().map(Question::Cel)
    }

    /// Returns what a filter says of changes, after a check that nothing fails.
    fn said(filter: &Filter, changes: &[Change]) -> Vec<bool> {
        let faults = Faults::new("c", |callback| panic!("a {callback:?} failed"));
        changes.iter().map(|change| filter.accepts(change, Asked { source: "s", faults: &faults })).collect()
    }

    #[test]
    fn the_users_questions_are_asked_besides_the_built_in_rules() {
        // CF-1, CF-2, CF-3, CF-4, CF-5
        let (all, no) = (Filters::default, || cel("false"));
        for (case, rules, user, accepted) in [
            ("built in", true, all(), [true, false, true, true]),
            ("not built in", false, all(), [true, true, true, true]),
            ("additions", true, Filters { on_add: no(), ..all() }, [false, false, true, true]),
            ("updates", true, Filters { on_update: no(), ..all() }, [true, false, false, true]),
            ("any but deletions", true, Filters { generic: no(), ..all() }, [false, false, false, true]),
            ("any, not built in", false, Filters { generic: no(), ..all() }, [false, false, false, true]),
        ] {
            let filter = Filter::primary(built_in(rules, None), user);
            assert_eq!(said(&filter, &changes()), accepted, "{case}");
        }
    }

    #[test]
    fn what_the_daemon_waits_for_passes_whatever_the_user_says() {
        // CF-2, CF-5, DI-4, PA-3
        const GOING: &str = r#""generation":1,"finalizers":["x.dev/f"],"deletionTimestamp":"t""#;
        let no = || Filters { on_update: cel("false"), generic: cel("false"), ..Filters::default() };
        for (old, new, accepted) in [
            (PLAIN, r#""generation":2"#, false),
            (PLAIN, PROTECTED, true),
            (PROTECTED, PLAIN, false),
            (PROTECTED, GOING, true),
            (GOING, GOING, false),
            // For the finalizer of whomever.
            (PLAIN, MARKED, true),
            (MARKED, MARKED, false),
            (PAUSED, PLAIN, true),
            (r#""uid":"1""#, r#""uid":"2""#, true),
        ] {
            let filter = Filter::primary(built_in(true, Some("x.dev/f")), no());
            assert_eq!(said(&filter, &[updated(old, new)]), [accepted], "{old} to {new}");
        }
        // A daemon that starts anew finds what it has to clean up as added.
        let no = Filters { on_add: cel("false"), generic: cel("false"), ..Filters::default() };
        let filter = Filter::primary(built_in(true, Some("x.dev/f")), no);
        let added = [GOING, MARKED, PROTECTED].map(|metadata| Change::Added(object(metadata)));
        assert_eq!(said(&filter, &added), [true, true, false]);
    }

    #[test]
    fn everything_matters_of_a_secondary_unless_the_user_says_no() {
        // IS-1
        let (all, no) = (Filters::default, || cel("false"));
        for (case, user, accepted) in [
            ("default", all(), [true, true, true, true]),
            ("additions", Filters { on_add: no(), ..all() }, [false, true, true, true]),
            ("updates", Filters { on_update: no(), ..all() }, [true, false, false, true]),
            ("deletions", Filters { on_delete: no(), ..all() }, [true, true, true, false]),
            ("any", Filters { generic: no(), ..all() }, [false, false, false, false]),
        ] {
            assert_eq!(said(&Filter::secondary(user), &changes()), accepted, "{case}");
        }
    }

    #[test]
    fn of_what_is_not_all_there_any_more_the_headers_alone_decide() {
        // BC-1
        let no = || Filters { generic: cel("false"), on_update: cel("false"), ..Filters::default() };
        let unseen = |filter: &Filter, sort| changes().map(|change| filter.accepts_unseen(&change, sort));
        let primary = Filter::primary(built_in(true, None), no());
        let by_rules = said(&Filter::primary(built_in(true, None), Filters::default()), &changes());
        assert!(by_rules.contains(&false), "an update of the status is one of them");
        assert_eq!(unseen(&primary, Sort::One).to_vec(), by_rules);
        assert_eq!(unseen(&primary, Sort::Mixed), [true; 4]);
        assert_eq!(unseen(&Filter::secondary(no()), Sort::One), [true; 4]);
    }

    #[test]
    fn a_question_sees_the_object_as_it_is_and_as_it_was() {
        // IS-1
        let all = Filters::default;
        for (case, user, accepted) in [
            (
                "old and new",
                Filters { on_update: cel("has(object.metadata.labels) && !has(oldObject.metadata.labels)"), ..all() },
                [true, true, false, true],
            ),
            (
                "by generation",
                Filters { generic: cel("object.metadata.generation > 1"), ..all() },
                [false, false, true, false],
            ),
            (
                "a deletion that was seen",
                Filters { on_delete: cel("!finalStateUnknown && object.metadata.name == 'a'"), ..all() },
                [true, true, true, false],
            ),
        ] {
            assert_eq!(said(&Filter::secondary(user), &changes()), accepted, "{case}");
        }
    }

    #[test]
    fn a_question_without_an_answer_lets_the_change_pass_and_is_counted() {
        // IS-1
        let long = format!(r#""annotations":{{"a":"{}"}}"#, "x".repeat(1000));
        let heavy = format!(r#""labels":[{}{{}}]"#, "{},".repeat(50_000));
        for (question, metadata) in [
            ("object.spec.value != 'skip'", PLAIN),
            ("object.metadata.generation", PLAIN),
            (
                "size(object.metadata.annotations.a) == 1000 && [1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, true)))))",
                &*long,
            ),
            ("object.metadata.name == 'b'", &*heavy),
        ] {
            let count = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&count);
            let faults = Faults::new("c", move |_| *counted.lock() += 1);
            let filter = Filter::secondary(Filters { generic: cel(question), ..Filters::default() });
            let asked = Asked { source: "s", faults: &faults };
            assert!(filter.accepts(&Change::Added(object(metadata)), asked), "{question}");
            assert_eq!(*count.lock(), 1, "{question}");
        }
    }
}
