//! Makes what templates stand for: the desired object of a dependent, and the status of a primary (DT rules).

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::visitor::{Stopped, Visitor};
use crate::cel::{DEPENDENTS, Template, WORKFLOW};
use crate::guest::{Cause, Context as _, Failure, WorkflowResult};
use crate::manifest::Dependent;
use crate::reconciler::concluding;
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
        let primary = self.run.primary_tree().map_err(|e| e.to_string())?;
        let reads = |name: &str| match part {
            Part::Whole => template.reads(name),
            Part::Name => template.name_reads(name),
        };
        let names: Vec<_> = spec.depends_on.iter().filter(|name| reads(name)).collect();
        let dependents = self.dependents(&names, part).await?;
        let variables = [("primary", &*primary), (DEPENDENTS, &dependents)];
        let made = {
            let budget = &mut self.run.budget.lock();
            match part {
                Part::Whole => template.make(&variables, budget),
                Part::Name => template.make_name(&variables, budget),
            }
        };
        self.run.keep_found(dependents);
        made.map_err(|unmade| Stopped::Unmade(unmade.kept_back(spec.shows_secret).to_string()))
    }

    /// Returns the document with the status of the primary.
    pub(in crate::reconciler) async fn status(&self, template: &Template) -> Result<String, Failure> {
        let wrong = |stopped: Stopped| {
            if let Stopped::Unknown(doubt) = &stopped {
                self.run.doubts(doubt);
            }
            Failure::new(Cause::Returned, format!("status: {stopped}"))
        };
        let names = self.workflow.nodes().map(|(name, _)| name);
        let names: Vec<_> = names.filter(|name| template.reads(name)).collect();
        let dependents = self.dependents(&names, Part::Whole).await.map_err(wrong)?;
        let primary = self.run.primary_tree().map_err(|e| wrong(e.to_string().into()))?;
        let workflow = workflow(self.run);
        let variables = [("primary", &*primary), (DEPENDENTS, &dependents), (WORKFLOW, &workflow)];
        let made = template.make(&variables, &mut self.run.budget.lock());
        let shows_secret = self.run.controller.spec.status_shows_secret();
        let status = made.map_err(|unmade| wrong(unmade.kept_back(shows_secret).to_string().into()))?;
        Ok(format!("{{\"status\":{status}}}"))
    }

    /// Returns the objects of dependents by their names: null where there is none. They are taken from what the run keeps of them.
    fn dependents<'v>(&'v self, names: &'v [&'v Arc<str>], part: Part) -> BoxFuture<'v, Result<Value, Stopped>> {
        // What one is called may be made from others in turn.
        async move {
            loop {
                for name in names {
                    if !self.run.has_found(name) {
                        let object = self.looked_for(name, part).await?;
                        self.run.keep_found(Map::from_iter([(name.to_string(), object)]).into());
                    }
                }
                if let Some(found) = self.run.take_found(names) {
                    return Ok(found);
                }
            }
        }
        .boxed()
    }

    async fn looked_for(&self, name: &Arc<str>, part: Part) -> Result<Value, Stopped> {
        let Run { controller, .. } = self.run;
        let Some(node) = controller.spec.workflows().find_map(|workflow| workflow.node(name)) else {
            return Ok(Value::Null);
        };
        // Whoever looks for a name to delete does not wait for what nobody watches.
        let rests = || controller.secondaries.get(name).is_some_and(|source| source.watched().is_err());
        if !self.run.is_active(name) || (part == Part::Name && rests()) {
            return Ok(Value::Null);
        }
        Ok(match self.found(name, node).await? {
            Found::One(object) | Found::Many(object) => object,
        })
    }
}

/// Returns how the workflow of a run has ended.
fn workflow(run: &Run) -> Value {
    let WorkflowResult { nodes, complete } =
        run.last_result(None).unwrap_or_else(|| WorkflowResult { nodes: Vec::new(), complete: true });
    let names = run.controller.spec.workflow.nodes();
    let ready: Map<_, _> = names.map(|(name, _)| (name.to_string(), run.is_ready(name).into())).collect();
    let spec = |name: &str| run.controller.spec.workflow.node(name);
    let failed = nodes
        .iter()
        .filter_map(|node| Some((node.name.clone(), concluding::told(spec(&node.name), node.failed.as_ref()?).into())));
    let failed: Map<_, _> = failed.collect();
    json!({ "complete": complete, "ready": ready, "failed": failed })
}
