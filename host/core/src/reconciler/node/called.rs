//! Decides how the object of a dependent is called, by the manifest or by what is desired (`KD-4`).

use std::sync::Arc;

use super::template::Part;
use super::visitor::{Stopped, Visitor};
use crate::cel::Expression;
use crate::dependent::{self, Misplaced};
use crate::manifest::{Called, Dependent};
use crate::object::ObjectRef;

impl Visitor<'_> {
    /// Returns how the object of a dependent is called, and asks for its desired state if nothing else says that (`KD-4`).
    pub(super) async fn key(&self, name: &Arc<str>, spec: &Dependent) -> Result<ObjectRef, Stopped> {
        let answer = match (&spec.called, &spec.template) {
            (Some(called), _) => return self.named(called, spec),
            // What else the template says may have no value any more, as when all is deleted.
            (None, Some(template)) => match self.run.kept_key(name) {
                Some(key) => return Ok(key),
                None => self.made(template, spec, Part::Name).await?.into(),
            },
            (None, None) => self.desired(name, spec).await.map_err(|stopped| match stopped {
                Stopped::Failed(why) => Stopped::Failed(format!(
                    "{why} (`desired` was asked how the object is called; `name` in the manifest would spare that)"
                )),
                Stopped::Refused(_)
                | Stopped::Unknown(_)
                | Stopped::Asked(_)
                | Stopped::Several(_)
                | Stopped::Unmade(_)
                | Stopped::Unread(_) => stopped,
            })?,
        };
        Ok(self.complete(name, spec, &answer)?.key().clone())
    }

    /// Returns the name and namespace that the manifest gives an object (`KD-4`); the namespace is the primary's by
    /// default.
    pub(super) fn named(&self, called: &Called, spec: &Dependent) -> Result<ObjectRef, Stopped> {
        let primary = self.run.primary_tree().map_err(|e| e.to_string())?;
        let text = |expression: &Expression| {
            let text = expression.text(&[("primary", &primary)], &mut self.run.budget.lock());
            text.map_err(|e| e.to_string())
        };
        let said = called.namespace.as_ref().map(text).transpose()?;
        let said = said.as_deref().filter(|text| !text.is_empty());
        let kind = &spec.gvk.kind;
        let place = dependent::place(self.scope(spec), said, self.run.primary.key());
        let namespace = place.map_err(|misplaced| match misplaced {
            Misplaced::Nowhere => format!(
                "a {kind} lives in a namespace, and the primary in none: say `namespace` beside `name` in the manifest"
            ),
            Misplaced::Inside => format!("a {kind} lives in no namespace: leave `namespace` out of the manifest"),
        })?;
        Ok(ObjectRef { namespace, name: text(&called.name)?.into() })
    }

    /// Fails if the manifest gives an object another name than `desired` did: it would be made under one name and
    /// looked for under another, so it would never be ready and never be deleted.
    pub(super) fn is_called_so(&self, spec: &Dependent, answered: &ObjectRef) -> Result<(), Stopped> {
        let Some(called) = &spec.called else {
            return Ok(());
        };
        let named = self.named(called, spec)?;
        if named == *answered {
            return Ok(());
        }
        Err(format!(
            "{answered}: `desired` answers it, and the manifest calls it {named}: let `name` and `namespace` say the same"
        )
        .into())
    }
}
