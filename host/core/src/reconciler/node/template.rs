//! Makes what templates stand for: the desired object of a dependent, and the status of a primary (DT rules).

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::visitor::{Stopped, Visitor};
use crate::cel::{DEPENDENTS, Template};
use crate::guest::{Cause, Context as _, Failure, WorkflowResult};
use crate::manifest::Dependent;
use crate::reconciler::run::Run;
use crate::workflow::condition::Found;

/// How much of a template is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// Name and namespace.
    Name,
}

impl Visitor<'_> {
    /// Makes the desired object of a dependent, or its name, from the primary and from what it depends on.
    pub(super) async fn made(&self, template: &Template, spec: &Dependent, part: Part) -> Result<String, Stopped> {
        let dependents = self.dependents(template, spec.depends_on.iter()).await?;
        let primary = self.run.primary_tree().map_err(|e| e.to_string())?;
        let variables = [("primary", &*primary), (DEPENDENTS, &dependents)];
        let budget = &mut self.run.budget.lock();
        let made = match part {
            Part::Whole => template.make(&variables, budget),
            Part::Name => template.make_name(&variables, budget),
        };
        made.map_err(|unmade| unmade.to_string().into())
    }

    /// Whether what is desired of a dependent may hold values of a Secret (`DT-4`).
    pub(super) fn shows_secret(&self, spec: &Dependent) -> bool {
        let declared = &self.run.controller.spec;
        spec.template.as_ref().is_some_and(|template| declared.shows_secret(template, spec.depends_on.iter()))
    }

    /// Returns the document with the status of the primary.
    pub(in crate::reconciler) async fn status(&self, template: &Template) -> Result<String, Failure> {
        let wrong = |stopped: Stopped| {
            if let Stopped::Unknown(doubt) = &stopped {
                self.run.doubts(doubt);
            }
            Failure::new(Cause::Returned, format!("status: {stopped}"))
        };
        let dependents = self.dependents(template, self.nodes.keys()).await.map_err(wrong)?;
        let primary = self.run.primary_tree().map_err(|e| wrong(e.to_string().into()))?;
        let workflow = workflow(self.run);
        let variables = [("primary", &*primary), (DEPENDENTS, &dependents), ("workflow", &workflow)];
        let made = template.make(&variables, &mut self.run.budget.lock());
        let status = made.map_err(|unmade| wrong(unmade.to_string().into()))?;
        Ok(format!("{{\"status\":{status}}}"))
    }

    /// Returns the objects of those dependents that a template looks at, by their names: null where there is none.
    fn dependents<'v>(
        &'v self,
        template: &'v Template,
        names: impl Iterator<Item = &'v Arc<str>> + Send + 'v,
    ) -> BoxFuture<'v, Result<Value, Stopped>> {
        // What one is called may be made from others in turn.
        async move {
            let mut objects = Map::new();
            for name in names.filter(|name| template.reads(name)) {
                let mut declared = self.run.controller.spec.dependents();
                let object = match declared.find(|(other, _)| *other == name) {
                    Some((_, spec)) if self.run.is_active(name) => match self.found(name, spec).await? {
                        Found::One(object) | Found::Many(object) => object,
                    },
                    Some(_) | None => Value::Null,
                };
                objects.insert(name.to_string(), object);
            }
            Ok(Value::Object(objects))
        }
        .boxed()
    }
}

/// Returns how the workflow of a run has ended.
fn workflow(run: &Run) -> Value {
    let WorkflowResult { nodes, complete } =
        run.last_result(None).unwrap_or_else(|| WorkflowResult { nodes: Vec::new(), complete: true });
    let names = run.controller.spec.workflow.dependents.keys();
    let ready: Map<_, _> = names.map(|name| (name.to_string(), run.is_ready(name).into())).collect();
    let failed = nodes.into_iter().filter_map(|node| Some((node.name, node.failed?.message.into())));
    let failed: Map<_, _> = failed.collect();
    json!({ "complete": complete, "ready": ready, "failed": failed })
}
