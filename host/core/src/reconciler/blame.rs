//! Decides of which class a failure is, by which its retries may differ (RT-7).

use crate::cluster;
use crate::guest::{CallReason, Cause, FailureClass};

/// Returns the class of a failed call.
pub(super) fn of_guest(cause: Cause) -> FailureClass {
    match cause {
        Cause::Returned => FailureClass::Returned,
        Cause::Trap => FailureClass::Trap,
        Cause::Timeout => FailureClass::Timeout,
        Cause::OutOfMemory => FailureClass::OutOfMemory,
        Cause::Other => FailureClass::Other,
    }
}

/// Returns the class of a write of the daemon that has failed.
pub(super) fn of_write(reason: cluster::Reason) -> FailureClass {
    use cluster::Reason;
    match reason {
        Reason::Conflict => FailureClass::Conflict,
        Reason::Missing | Reason::UnknownKind | Reason::Forbidden | Reason::Rejected | Reason::Invalid => {
            FailureClass::Rejected
        }
        // An outage is retried until it is over, whatever its class.
        Reason::Busy | Reason::Unreachable | Reason::Unusable => FailureClass::Other,
    }
}

/// Returns the class of a workflow that has failed, by what each of its failed dependents was refused for: theirs, if all are of the same.
pub(super) fn of_workflow(refused: impl IntoIterator<Item = Option<CallReason>>) -> FailureClass {
    let mut classes = refused.into_iter().map(|refused| refused.map_or(FailureClass::Workflow, of_refusal));
    let first = classes.next().unwrap_or(FailureClass::Workflow);
    if classes.all(|class| class == first) { first } else { FailureClass::Workflow }
}

fn of_refusal(reason: CallReason) -> FailureClass {
    match reason {
        CallReason::Conflict => FailureClass::Conflict,
        CallReason::Denied | CallReason::Rejected | CallReason::Missing | CallReason::Invalid => FailureClass::Rejected,
        CallReason::Misplaced
        | CallReason::Ambiguous
        | CallReason::Unreachable
        | CallReason::Failed
        | CallReason::Exhausted
        | CallReason::Other => FailureClass::Workflow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_fails_for_what_all_of_its_dependents_were_refused_for() {
        // RT-7
        let (conflict, denied, rejected) = (CallReason::Conflict, CallReason::Denied, CallReason::Rejected);
        let table = [
            (vec![Some(conflict), Some(conflict)], FailureClass::Conflict),
            (vec![Some(denied), Some(rejected)], FailureClass::Rejected),
            (vec![Some(conflict), Some(rejected)], FailureClass::Workflow),
            (vec![Some(conflict), None], FailureClass::Workflow),
            (vec![None], FailureClass::Workflow),
            (vec![Some(CallReason::Exhausted)], FailureClass::Workflow),
            (vec![], FailureClass::Workflow),
        ];
        for (refused, class) in table {
            assert_eq!(of_workflow(refused.clone()), class, "{refused:?}");
        }
    }
}
