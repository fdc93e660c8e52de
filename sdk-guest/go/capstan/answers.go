// What the functions of an operator can answer.

package capstan

import (
	"time"

	"github.com/capstan-dev/capstan/sdk-guest/go/internal/document"
)

// Update says what to write to the primary, and when to come back. The zero value writes nothing and waits for the next
// event.
//
//	return capstan.Update{Status: Status{Ready: true}, Reschedule: time.Minute}, nil
type Update struct {
	// Object is written without its status. With server-side apply, give the fields that this controller owns and no others;
	// kind, name and namespace are filled in by the daemon.
	Object any
	// Status is written as the status.
	Status any
	// Reschedule runs again after so long, at most 49 days; see [AtOnce].
	Reschedule time.Duration
	// OnlyAt writes only if the primary still has this resourceVersion; else the run fails with a conflict.
	OnlyAt string
}

// AtOnce is the delay of a run that follows at once.
const AtOnce time.Duration = 1

// Deletion says whether a primary may go. The zero value says yes: the finalizer is removed if the workflow agrees.
type Deletion struct {
	// KeepFinalizer says not yet: Cleanup is called again at the next event.
	KeepFinalizer bool
	// Reschedule calls it again after so long, if the finalizer is kept.
	Reschedule time.Duration
}

// Failure is what failed. As JSON, in a status for example, it has the words of the contract.
type Failure struct {
	// Origin says where it comes from.
	Origin Origin `json:"origin"`
	// Message is the text of the failure.
	Message string `json:"message"`
	// Refused is the [Reason] of the API server's refusal, or [ErrUnreachable] if it could not be asked, if that is why, else nil;
	// [ErrConflict] if all dependents that failed did for that.
	Refused error `json:"refused,omitempty"`
	// Dependents are those that failed; none unless the origin is the workflow.
	Dependents []DependentFailure `json:"dependents,omitempty"`
	// Retry is the retry state.
	Retry Retry `json:"retry"`
}

// String returns the message.
func (f Failure) String() string { return f.Message }

// DependentFailure is a dependent that failed.
type DependentFailure struct {
	// Name is the dependent's.
	Name string `json:"name"`
	// Message is the text of its failure.
	Message string `json:"message"`
	// Refused is the [Reason] of the API server's refusal, or [ErrUnreachable] if it could not be asked, if that is why, else nil.
	Refused error `json:"refused,omitempty"`
}

// String returns the name and the message.
func (f DependentFailure) String() string { return f.Name + ": " + f.Message }

// Origin says where a failure comes from.
type Origin string

// The origins.
const (
	// FromReconciler: Reconcile returned it.
	FromReconciler Origin = "reconciler"
	// FromWorkflow: the managed workflow.
	FromWorkflow Origin = "workflow"
	// FromUpdate: the write that Reconcile asked for.
	FromUpdate Origin = "update"
	// FromTrap: the component trapped.
	FromTrap Origin = "trap"
	// FromTimeout: the call took longer than the manifest allows.
	FromTimeout Origin = "timeout"
	// FromOutOfMemory: the component wanted more memory than the manifest allows.
	FromOutOfMemory Origin = "out-of-memory"
	// FromElsewhere: anything else.
	FromElsewhere Origin = "other"
)

// Handled says how a failure is dealt with: it is logged once for each cause, and retried as the manifest says unless a field says otherwise. A function that
// returns nil has not dealt with it, as if it were not there. Stop, Reschedule and RetryAfter exclude each other.
type Handled struct {
	// Status is written as the status.
	Status any
	// Stop does not retry: the primary waits for its next event.
	Stop bool
	// Reschedule runs again after so long instead of retrying; see [AtOnce].
	Reschedule time.Duration
	// RetryAfter retries after so long, in place of the delay that the manifest says. It uses up an attempt, and none follows
	// the last one.
	RetryAfter time.Duration
}

// FailedRun says what failed, for a function of [DecideRetry].
type FailedRun struct {
	// FailureClass is that of the failure.
	FailureClass FailureClass `json:"failureClass"`
	// Message is the text of the failure.
	Message string `json:"message"`
	// Retry is the retry state.
	Retry Retry `json:"retry"`
}

// String returns the message.
func (f FailedRun) String() string { return f.Message }

// FailureClass is the class of a failure, as under retry.by in the manifest.
type FailureClass string

// The classes.
const (
	// ClassReturned: the component returned an error.
	ClassReturned FailureClass = "returned"
	// ClassWorkflow: dependents of the managed workflow failed, and not all of them for a conflict, or for a refusal.
	ClassWorkflow FailureClass = "workflow"
	// ClassConflict: a write of the daemon met a newer version.
	ClassConflict FailureClass = "conflict"
	// ClassRejected: such a write was refused.
	ClassRejected FailureClass = "rejected"
	// ClassTrap: the component trapped.
	ClassTrap FailureClass = "trap"
	// ClassTimeout: a call, or the run, took longer than it may.
	ClassTimeout FailureClass = "timeout"
	// ClassOutOfMemory: the component wanted more memory than it may have.
	ClassOutOfMemory FailureClass = "out-of-memory"
	// ClassOther: anything else.
	ClassOther FailureClass = "other"
)

// NextRetry says when a failed run is retried. The zero value is as the manifest says. After and Stop exclude each other.
type NextRetry struct {
	// After retries after so long, in place of the delay that the manifest says; see [AtOnce]. It uses up an attempt, and none
	// follows the last one.
	After time.Duration
	// Stop does not retry: the primary waits for its next event.
	Stop bool
}

// Problem is what is wrong with a primary; it is shown in the status and in an Event, so no secrets in it.
type Problem struct {
	// Field is the field, as people write it: "spec.replicas"; empty for the primary as a whole.
	Field string
	// Message is what was found, and what would be right.
	Message string
}

// Met says whether a condition is met, with a detail. A function without a detail returns a bool instead.
type Met struct {
	// Met is true if it is.
	Met bool
	// Detail is anything worth keeping; it is found in the result of the workflow. A text is shown in the status as well, so no secrets in it.
	Detail any
}

// Things are those of one primary outside of the cluster. The zero value says that there are none.
//
//	return capstan.Things{Things: []Domain{{Name: "example.com"}}}, nil
type Things struct {
	// Things is a list of anything that encoding/json writes, each with an id where the manifest says.
	Things any
	// Again reads them again after so long, in place of the manifest's period; at most 49 days.
	Again time.Duration
}

// PrimaryThings are the things of a primary outside of the cluster.
type PrimaryThings struct {
	// Namespace is the primary's; empty for a cluster-scoped one.
	Namespace string
	// Name is the primary's.
	Name string
	// Things is a list of anything that encoding/json writes, each with an id where the manifest says.
	Things any
}

// Equal compares two values for a function of [Match]: it returns the text if they differ, and nothing otherwise. Numbers in an [Object] are equal
// if they say the same, however they are written.
func Equal(differs string, actual, desired any) string {
	if document.Equal(actual, desired) {
		return ""
	}
	return differs
}
