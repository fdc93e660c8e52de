//! Decides which thing outside of the cluster is desired, by what it is told from others, and whether one is like that (XD-1).

use std::sync::Arc;

use serde_json::Value;

use crate::budget::Budget;
use crate::dependent::diff;
use crate::external::{External, Unclear, key_of};
use crate::guest::MatchResult;
use crate::manifest::{GenericMatching, Outside};
use crate::reconciler::node::visitor::{Stopped, Visitor};

/// A dependent outside of the cluster: its name, what the manifest says of it, and what knows of it.
pub(super) type Declared<'a> = (&'a Arc<str>, &'a Outside, &'a External);

/// A thing that should be.
pub(super) struct Wanted {
    /// As it was answered.
    pub(super) text: String,
    tree: Value,
    /// What tells it from others; `None`: nothing, so that it is the only one.
    pub(super) key: Option<Arc<str>>,
    /// Its id, if that is known before it is created.
    pub(super) id: Option<Arc<str>>,
    /// Where the id is, if it is for the other side to say.
    open: Option<Arc<str>>,
}

impl Visitor<'_> {
    /// Returns what is desired of a dependent that is one thing.
    pub(super) async fn wanted_thing(&self, declared: Declared<'_>) -> Result<Wanted, Stopped> {
        let (name, spec, _) = declared;
        let desired = self.desired_thing(name).await?;
        let called = self.id_called(spec)?;
        Ok(Wanted::of(desired.to_string(), declared, called, &mut self.run.budget.lock())?)
    }

    /// Returns what tells the thing of a dependent from others, without asking for what is desired if the manifest says the id (`KD-4`), or
    /// if nothing is ever desired.
    pub(super) async fn key_of_wanted(&self, declared: Declared<'_>) -> Result<Option<Arc<str>>, Stopped> {
        let (_, spec, _) = declared;
        match self.id_called(spec)? {
            Some(id) => Ok(Some(id)),
            None if !spec.manage.create && !spec.manage.update && !spec.manage.delete => Ok(None),
            None => Ok(self.wanted_thing(declared).await?.key),
        }
    }

    /// Returns the id that the manifest says.
    fn id_called(&self, spec: &Outside) -> Result<Option<Arc<str>>, Stopped> {
        let Some(expression) = &spec.called else {
            return Ok(None);
        };
        let primary = self.run.primary_tree().map_err(|error| error.to_string())?;
        let text = expression.text(&[("primary", &primary)], &mut self.run.budget.lock());
        Ok(Some(text.map_err(|error| error.to_string())?.into()))
    }

    /// Returns the component's answer to `desired`, which is asked for once per run (`CX-3`).
    async fn desired_thing(&self, name: &Arc<str>) -> Result<Arc<str>, Stopped> {
        if let Some(answer) = self.run.desired(name) {
            return Ok(answer);
        }
        let answer = self.session.desired(name, self.run.primary.json()).await;
        let answer: Arc<str> = answer.map_err(|failure| failure.message)?.into();
        self.run.keep_desired(name, &answer);
        Ok(answer)
    }
}

impl Wanted {
    /// Reads what is desired. `called` is the id that the manifest says.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub(super) fn of(
        text: String,
        (name, spec, source): Declared<'_>,
        called: Option<Arc<str>>,
        budget: &mut Budget,
    ) -> Result<Self, String> {
        let wrong = |what: String| format!("what is desired of {name}: {what}");
        let unclear = |unclear: Unclear| wrong(unclear.to_string());
        let tree = budget.read(&text).map_err(|error| wrong(error.to_string()))?;
        let said = key_of(&tree, None, source, budget).map_err(unclear)?;
        let open = said.is_none().then(|| Arc::clone(source.spec.id.text()));
        let id = match (said, called) {
            (Some(said), Some(called)) if said != called => {
                let what = format!("it has the id {said:?}, and the manifest says {called:?}: let `name` say the same");
                return Err(wrong(what));
            }
            (said, called) => said.or(called),
        };
        let key = match &spec.key {
            Some(key) => key_of(&tree, Some(key), source, budget).map_err(unclear)?,
            None => id.clone(),
        };
        Ok(Self { text, tree, key, id, open })
    }

    /// Returns whether a thing is as desired, compared as the manifest says (`GM-2`); an id that is not desired does not count.
    ///
    /// # Errors
    /// A text, if the thing can't be read.
    pub(super) fn compare(
        &self,
        actual: &str,
        flags: &GenericMatching,
        budget: &mut Budget,
    ) -> Result<MatchResult, String> {
        if *actual == *self.text {
            return Ok(MatchResult::Matches);
        }
        let found = budget.read(actual).map_err(|error| error.to_string())?;
        let ignore: Vec<&str> = flags.ignore.iter().chain(&self.open).map(|pointer| &**pointer).collect();
        Ok(if flags.equality || !flags.ignore.is_empty() {
            diff::compare_all(&found, &self.tree, &ignore, budget)
        } else {
            diff::compare_some(&found, &self.tree, &ignore, budget)
        })
    }
}
