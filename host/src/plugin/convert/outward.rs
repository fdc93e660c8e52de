//! The daemon's own types, as the contract has them: what a component is told.

use capstan_core::guest;
use capstan_core::object;

use crate::plugin::bindings::capstan::operator::{context, expectations, types, workflow};
use crate::plugin::bindings::exports::capstan::operator::{error_handler, filter, inbound, retry_policy};

impl<'a> From<guest::Changed<'a>> for filter::Change {
    fn from(changed: guest::Changed<'a>) -> Self {
        match changed {
            guest::Changed::Added(object) => Self::Added(object.to_owned()),
            guest::Changed::Updated { before, after } => {
                Self::Updated(filter::ObjectUpdate { before: before.to_owned(), after: after.to_owned() })
            }
            guest::Changed::Deleted { last, unknown } => {
                Self::Deleted(filter::ObjectDeletion { last: last.to_owned(), final_state_unknown: unknown })
            }
        }
    }
}

impl From<&guest::InboundRequest> for inbound::InboundRequest {
    fn from(request: &guest::InboundRequest) -> Self {
        let guest::InboundRequest { path, headers, body } = request;
        let pair = |(name, value): &(String, String)| types::Pair { name: name.clone(), value: value.clone() };
        Self { path: path.clone(), headers: headers.iter().map(pair).collect(), body: body.clone() }
    }
}

impl From<&guest::FailureInfo> for error_handler::FailureInfo {
    fn from(info: &guest::FailureInfo) -> Self {
        let dependents = info.dependents.iter();
        Self {
            origin: info.origin.into(),
            message: info.message.clone(),
            refused: info.refused.map(Into::into),
            dependents: dependents
                .map(|(name, failure)| error_handler::DependentFailure {
                    name: name.clone(),
                    message: failure.message.clone(),
                    refused: failure.refused.map(Into::into),
                })
                .collect(),
            retry: info.retry.into(),
        }
    }
}

impl From<&guest::FailedRun> for retry_policy::FailedRun {
    fn from(failed: &guest::FailedRun) -> Self {
        let guest::FailedRun { class, message, retry } = failed;
        Self { failure_class: (*class).into(), message: message.clone(), retry: (*retry).into() }
    }
}

same!(guest::FailureClass => retry_policy::FailureClass {
    Returned, Workflow, Conflict, Rejected, Trap, Timeout, OutOfMemory, Other,
});

impl From<guest::FailureOrigin> for error_handler::FailureOrigin {
    fn from(origin: guest::FailureOrigin) -> Self {
        match origin {
            guest::FailureOrigin::Reconciler => Self::Reconciler,
            guest::FailureOrigin::Workflow => Self::Workflow,
            guest::FailureOrigin::Update => Self::Update,
            guest::FailureOrigin::Trap => Self::Trap,
            guest::FailureOrigin::Timeout => Self::Timeout,
            guest::FailureOrigin::OutOfMemory => Self::OutOfMemory,
            // An enum of the contract can't grow.
            guest::FailureOrigin::Invalid | guest::FailureOrigin::Other => Self::Other,
        }
    }
}

impl From<guest::RunInfo> for context::RunInfo {
    fn from(info: guest::RunInfo) -> Self {
        Self {
            controller: info.controller.to_string(),
            retry: info.retry.map(Into::into),
            primary_deleted: info.primary_deleted,
            final_state_unknown: info.final_state_unknown,
        }
    }
}

impl From<guest::RetryInfo> for types::RetryInfo {
    fn from(retry: guest::RetryInfo) -> Self {
        Self { attempt: retry.attempt, last: retry.last }
    }
}

impl From<guest::Expectation> for expectations::Expectation {
    fn from(expectation: guest::Expectation) -> Self {
        let guest::Expectation { name, timed_out } = expectation;
        Self { name, timed_out }
    }
}

impl From<guest::Page> for types::Page {
    fn from(page: guest::Page) -> Self {
        Self { items: page.items, next: page.next }
    }
}

same!(guest::MatchResult => types::MatchResult { Matches, Differs(what) });

impl From<guest::WorkflowResult> for workflow::WorkflowResult {
    fn from(result: guest::WorkflowResult) -> Self {
        Self { nodes: result.nodes.into_iter().map(Into::into).collect(), complete: result.complete }
    }
}

impl From<guest::NodeResult> for workflow::NodeResult {
    fn from(node: guest::NodeResult) -> Self {
        let done = node.done.into_iter();
        let conditions = node.conditions.into_iter();
        Self {
            name: node.name,
            done: done.map(|(key, operation)| workflow::ObjectResult { key, operation: operation.into() }).collect(),
            conditions: conditions
                .map(|(role, result)| workflow::ConditionOutcome {
                    role: role.into(),
                    met: result.met,
                    detail: result.detail,
                })
                .collect(),
            failed: node.failed.map(|failure| failure.message),
        }
    }
}

same!(guest::Operation => workflow::Operation { Unchanged, Created, Updated, Deleted });

same!(guest::ConditionRole => workflow::ConditionRole {
    Activation, ReconcilePrecondition, ReadyPostcondition, DeletePostcondition,
});

impl From<guest::CallError> for types::CallError {
    fn from(error: guest::CallError) -> Self {
        Self { reason: error.reason.into(), code: error.code, message: error.message }
    }
}

impl From<object::Error> for types::CallError {
    /// What names a kind wrongly, or is no object, is an argument that is wrong.
    fn from(error: object::Error) -> Self {
        Self { reason: types::CallReason::Invalid, code: 0, message: error.to_string() }
    }
}

same!(guest::CallReason => types::CallReason {
    Denied, Invalid, Misplaced, Missing, Ambiguous, Conflict, Rejected, Unreachable, Failed, Exhausted, Other,
});
