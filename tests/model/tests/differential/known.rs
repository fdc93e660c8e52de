//! Says in what the model is known to be unlike the real API server: operations that show it are left out.

use serde_json::{Value, json};

use crate::operation::{Act, Kind, Operation};

/// A difference.
pub(crate) struct Known {
    pub(crate) what: &'static str,
    /// Why it is left.
    pub(crate) why: &'static str,
    /// Whether an operation may show it.
    pub(crate) shown_by: fn(&Operation) -> bool,
}

/// All known differences.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        what: "a Service that a PUT to its status creates",
        why: "the real one gives it no address then, and half of one with the next PUT; nobody does that",
        shown_by: |operation| {
            let replaces = matches!(&operation.act, Act::Replace { change, .. } if change.get("spec").is_some());
            operation.kind == Kind::Service && operation.status && replaces
        },
    },
    Known {
        what: "empty labels, annotations or finalizers of a custom resource",
        why: "the real one stores them and never shows them, so that the next write which changes nothing makes another version",
        shown_by: |operation| matches!(operation.kind, Kind::Thing | Kind::Probe) && has_empty(&operation.act),
    },
];

/// Returns what is known of an operation.
pub(crate) fn known(operation: &Operation) -> Option<&'static Known> {
    KNOWN.iter().find(|known| (known.shown_by)(operation))
}

fn has_empty(act: &Act) -> bool {
    let empty = |value: &Value| *value == json!({}) || *value == json!([]);
    let fields = ["labels", "annotations", "finalizers"];
    match act {
        Act::Create(object)
        | Act::Replace { change: object, .. }
        | Act::Merge { patch: object, .. }
        | Act::Apply { object, .. } => fields.iter().any(|field| empty(&object["metadata"][field])),
        Act::Json(patch) => patch.as_array().unwrap().iter().any(|part| empty(&part["value"])),
        Act::Delete { .. } | Act::Get | Act::List => false,
    }
}
