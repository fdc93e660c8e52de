//! Decides which changes matter to a controller, from headers alone (CF, IS).
//!
//! Filters suppress events only: caches and indexes hold every object (`IS-3`).

use std::fmt;
use std::sync::Arc;

use crate::object::{Change, Header};

/// The filter of one source: built-in rules, and questions that the user adds. Both must accept.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    built_in: BuiltIn,
    user: UserFilter,
}

/// The filter of primaries (`CF-2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryFilter {
    /// True if updates that do not change the generation are ignored.
    pub generation_aware: bool,
    /// The controller's finalizer, if something needs cleanup.
    pub finalizer: Option<Arc<str>>,
}

/// The user's part of a filter; a missing question accepts everything.
#[derive(Clone, Default)]
pub struct UserFilter {
    /// Asked about additions.
    pub added: Option<Question>,
    /// Asked about updates.
    pub updated: Option<Question>,
    /// Asked about deletions; for secondaries only (`CF-4`).
    pub deleted: Option<Question>,
    /// Asked about every change (`CF-5`).
    pub any: Option<Question>,
}

/// A function that returns true if a change matters. Runs in the informer's task, so it must be quick.
pub type Question = Arc<dyn Fn(&Change) -> bool + Send + Sync>;

/// The reason why a filter is refused. Retrying does not help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A filter for deletions of primaries: the controller would never learn that a primary is gone (`CF-4`).
    #[error("deletions of primaries cannot be filtered")]
    Deletions,
}

#[derive(Clone, Debug, Default)]
enum BuiltIn {
    #[default]
    Nothing,
    Primary(PrimaryFilter),
}

// === impl Filter ===

impl Filter {
    /// Returns the filter of a primary source; with `built_in` as `None`, it has no built-in rules (`CF-3`).
    ///
    /// # Errors
    /// [`Error::Deletions`] if the user filters deletions.
    pub fn primary(built_in: Option<PrimaryFilter>, user: UserFilter) -> Result<Self, Error> {
        if user.deleted.is_some() {
            return Err(Error::Deletions);
        }
        Ok(Self { built_in: built_in.map(BuiltIn::Primary).unwrap_or_default(), user })
    }

    /// Returns the filter of a secondary source: only the user's questions count (`IS-1`). The default accepts
    /// everything.
    pub fn secondary(user: UserFilter) -> Self {
        Self { built_in: BuiltIn::Nothing, user }
    }

    /// Returns true if the change matters.
    pub fn accepts(&self, change: &Change) -> bool {
        let built_in = match &self.built_in {
            BuiltIn::Nothing => true,
            BuiltIn::Primary(filter) => accepts(change, filter),
        };
        built_in && self.user.accepts(change)
    }
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
    let paused = old.paused != new.paused;
    made_again || unprotected || changed || marked || paused
}

impl UserFilter {
    fn accepts(&self, change: &Change) -> bool {
        let specific = match change {
            Change::Added(_) => &self.added,
            Change::Updated { .. } => &self.updated,
            Change::Deleted { .. } => &self.deleted,
        };
        [specific, &self.any].into_iter().flatten().all(|question| question(change))
    }
}

impl fmt::Debug for UserFilter {
    /// Writes for each question if it is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFilter")
            .field("added", &self.added.is_some())
            .field("updated", &self.updated.is_some())
            .field("deleted", &self.deleted.is_some())
            .field("any", &self.any.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers, Object};

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
        // CF-2 (b) (c), CF-7, PA-3
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

    fn no() -> Question {
        Arc::new(|_: &Change| false)
    }

    #[test]
    fn the_users_questions_are_asked_besides_the_built_in_rules() {
        // CF-1, CF-2, CF-3, CF-4, CF-5
        let all = UserFilter::default;
        for (case, rules, user, accepted) in [
            ("built in", true, all(), [true, false, true, true]),
            ("not built in", false, all(), [true, true, true, true]),
            ("additions", true, UserFilter { added: Some(no()), ..all() }, [false, false, true, true]),
            ("updates", true, UserFilter { updated: Some(no()), ..all() }, [true, false, false, true]),
            ("any", true, UserFilter { any: Some(no()), ..all() }, [false, false, false, false]),
        ] {
            let filter = Filter::primary(rules.then(|| built_in(true, None)), user).unwrap();
            assert_eq!(changes().map(|change| filter.accepts(&change)), accepted, "{case}");
        }
        let refused = Filter::primary(None, UserFilter { deleted: Some(no()), ..all() }).unwrap_err();
        assert_eq!(refused.to_string(), "deletions of primaries cannot be filtered");
    }

    #[test]
    fn everything_matters_of_a_secondary_unless_the_user_says_no() {
        // IS-1
        let all = UserFilter::default;
        for (case, user, accepted) in [
            ("default", all(), [true, true, true, true]),
            ("additions", UserFilter { added: Some(no()), ..all() }, [false, true, true, true]),
            ("updates", UserFilter { updated: Some(no()), ..all() }, [true, false, false, true]),
            ("deletions", UserFilter { deleted: Some(no()), ..all() }, [true, true, true, false]),
            ("any", UserFilter { any: Some(no()), ..all() }, [false, false, false, false]),
        ] {
            let filter = Filter::secondary(user);
            assert_eq!(changes().map(|change| filter.accepts(&change)), accepted, "{case}");
        }
    }
}
