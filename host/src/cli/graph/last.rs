//! Says at the nodes of workflows what a running daemon knows of the last run of a primary.

use std::collections::BTreeMap;

use anyhow::ensure;
use capstan_core::reconciler::verdicts::{Reached, Walked};

use super::{Node, Part};
use crate::cli::daemon;
use crate::supervisor::status::Walks;

/// What a node came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) line: String,
    pub(super) outcome: Outcome,
}

/// How that is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Waits,
    Failed,
    Idle,
}

/// Asks the daemon at an address about a primary: `namespace/name`, or `name` of one without a namespace.
pub(super) async fn asked(address: &str, object: &str) -> anyhow::Result<Walks> {
    daemon::asked(address, daemon::page(address, "/debug/workflows", &[("object", object)])).await
}

/// Says at each node what it came to, and leaves out the workflows of controllers that have no such primary.
///
/// # Errors
/// If nothing is known of the primary.
pub(super) fn mark(parts: &mut Vec<Part>, object: &str, walks: &Walks) -> anyhow::Result<()> {
    for row in &walks.primaries {
        let walked: Vec<Walked> = serde_json::from_str(row.workflows.get())?;
        for part in parts.iter_mut().filter(|part| *part.controller == *row.controller) {
            let [_, primary] = &mut part.heading;
            *primary = format!("{primary} {object}, {} s ago", row.seconds_ago);
            let walked = walked.iter().find(|walked| walked.workflow.as_deref() == part.workflow.as_deref());
            mark_nodes(&mut part.nodes, walked);
        }
    }
    parts.retain(|part| walks.primaries.iter().any(|row| *part.controller == *row.controller));
    ensure!(
        !parts.is_empty(),
        "the daemon knows of no run of {object} with a workflow of these manifests: there was none since it started, or of too many others since"
    );
    Ok(())
}

fn mark_nodes(nodes: &mut [Node], walked: Option<&Walked>) {
    let reached: BTreeMap<&str, &Reached> =
        walked.into_iter().flat_map(|walked| &walked.nodes).map(|node| (&*node.name, node)).collect();
    let is_whole = walked.is_none_or(|walked| walked.more == 0);
    for node in nodes {
        let last = reached.get(&*node.name).map(|reached| said(reached));
        node.last = Some(last.unwrap_or_else(|| Last {
            line: if is_whole { "not reached" } else { "not known" }.to_owned(),
            outcome: Outcome::Idle,
        }));
    }
}

fn said(reached: &Reached) -> Last {
    let Reached { unchanged, created, updated, deleted, unmet, failed, .. } = reached;
    let lacks = |role: &str| unmet.iter().any(|unmet| unmet == role);
    let counts = [(unchanged, "unchanged"), (created, "created"), (updated, "updated"), (deleted, "deleted")];
    let done = counts.into_iter().filter(|(count, _)| **count > 0).map(|(count, what)| match count {
        1 => what.to_owned(),
        count => format!("{count} {what}"),
    });
    let (role, outcome) = if lacks("activation") {
        (Some("inactive"), Outcome::Idle)
    } else if lacks("deletePostcondition") {
        (Some("not gone yet"), Outcome::Waits)
    } else if lacks("reconcilePrecondition") {
        (Some("not wanted"), Outcome::Idle)
    } else if lacks("readyPostcondition") {
        (Some("not ready"), Outcome::Waits)
    } else {
        (None, Outcome::Done)
    };
    let facts: Vec<String> = done.chain(role.map(str::to_owned)).collect();
    let facts = if facts.is_empty() { "nothing to do".to_owned() } else { facts.join(", ") };
    match failed {
        Some(why) => Last { line: format!("failed: {why}"), outcome: Outcome::Failed },
        None => Last { line: facts, outcome },
    }
}

impl Outcome {
    /// Returns the colour of its box.
    pub(super) fn colour(self) -> &'static str {
        match self {
            Self::Done => "#d8f0d8",
            Self::Waits => "#fff2cc",
            Self::Failed => "#f8d0d0",
            Self::Idle => "#eeeeee",
        }
    }

    /// Returns the name of its class in a flowchart.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waits => "waits",
            Self::Failed => "failed",
            Self::Idle => "idle",
        }
    }

    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Done, Self::Waits, Self::Failed, Self::Idle];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_what_was_done_and_what_it_waits_for() {
        let many = |created, unchanged| Reached { created, unchanged, ..Reached::default() };
        let unmet = |role: &str, reached: Reached| Reached { unmet: vec![role.to_owned()], ..reached };
        let failed = Reached { failed: Some("refused".to_owned()), ..many(1, 0) };
        let deleted = Reached { deleted: 1, ..Reached::default() };
        for (reached, line, outcome) in [
            (many(1, 0), "created", Outcome::Done),
            (many(2, 1), "unchanged, 2 created", Outcome::Done),
            (many(0, 0), "nothing to do", Outcome::Done),
            (unmet("readyPostcondition", many(0, 1)), "unchanged, not ready", Outcome::Waits),
            (unmet("deletePostcondition", deleted.clone()), "deleted, not gone yet", Outcome::Waits),
            (unmet("reconcilePrecondition", deleted), "deleted, not wanted", Outcome::Idle),
            (unmet("activation", many(0, 0)), "inactive", Outcome::Idle),
            (failed, "failed: refused", Outcome::Failed),
        ] {
            assert_eq!(said(&reached), Last { line: line.to_owned(), outcome });
        }
    }
}
