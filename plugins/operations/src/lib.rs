//! Does what its primary says: so many attempts fail, each computes so long, and takes so much memory.
//!
//! Two controllers use this component, in the same way; what is different between them stands in the manifest.

use std::hint::black_box;

use capstan_guest::{Metadata, Reconciler, Result, Update, context, info, system};
use serde::Deserialize;
use serde_json::json;

/// A `QuickTask` or a `SlowTask`.
#[derive(Deserialize)]
struct Task {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    failures: u32,
    compute_ms: u32,
    memory_mi: usize,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: Option<i64>,
}

struct Operations;

impl Reconciler for Operations {
    type Primary = Task;

    /// What was done once for this spec is done.
    fn reconcile(task: &Task) -> Result<Update> {
        let generation = task.metadata.generation;
        if generation.is_some() && task.status.observed_generation == generation {
            return Ok(Update::nothing());
        }
        let attempt = context::retry().map_or(0, |retry| retry.attempt);
        task.spec.work();
        let failures = task.spec.failures;
        if attempt < failures {
            return Err(format!("fails on purpose: spec.failures is {failures}").into());
        }
        info!("done", attempt);
        Ok(Update::status(json!({ "state": "Done", "attempts": attempt + 1, "observedGeneration": generation })))
    }
}

capstan_guest::export!(Operations: Reconciler);

impl Spec {
    /// Takes the memory, and computes for as long, by the clock.
    fn work(&self) {
        let memory = vec![1_u8; self.memory_mi.saturating_mul(1 << 20)];
        let until = system::now_ms() + f64::from(self.compute_ms);
        while system::now_ms() < until {}
        black_box(memory);
    }
}

#[cfg(test)]
mod tests;
