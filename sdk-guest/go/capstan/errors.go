// Why the daemon refuses something.

package capstan

import "fmt"

// CallError says why the daemon, or the API server, refused what was asked for. What a program decides on is its reason:
//
//	if errors.Is(err, capstan.ErrConflict) { … }
type CallError struct {
	// Reason is the sort of refusal.
	Reason Reason
	// Code is the API server's HTTP status; 0 if it was not asked.
	Code int
	// Message is the explanation, for people.
	Message string
}

// Error returns the explanation.
func (e *CallError) Error() string { return e.Message }

// Unwrap returns the reason, which is what makes errors.Is work.
func (e *CallError) Unwrap() error { return e.Reason }

// Reason is a sort of refusal, and an error to compare with.
type Reason uint8

// The sorts of refusal.
const (
	// ErrDenied: the manifest does not permit it.
	ErrDenied Reason = iota
	// ErrInvalid: an argument is wrong: not JSON, a name lacking, options that exclude each other.
	ErrInvalid
	// ErrMisplaced: not possible in this call, for example a workflow outside of Reconcile and Cleanup.
	ErrMisplaced
	// ErrMissing: the source, kind, index, workflow or object does not exist.
	ErrMissing
	// ErrAmbiguous: there are several and one was asked for.
	ErrAmbiguous
	// ErrConflict: somebody else was faster.
	ErrConflict
	// ErrRejected: the API server said no.
	ErrRejected
	// ErrUnreachable: the API server could not be reached, or failed.
	ErrUnreachable
	// ErrFailed: a workflow ran, and at least one of its nodes failed.
	ErrFailed
	// ErrExhausted: a limit of the manifest is reached.
	ErrExhausted
	// ErrOther: anything else.
	ErrOther
)

var reasons = [...]string{
	"denied", "invalid", "misplaced", "missing", "ambiguous", "conflict", "rejected", "unreachable", "failed", "exhausted", "other",
}

// Error returns the reason's name, such as "conflict".
func (r Reason) Error() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// MarshalText returns the reason's name, which is what it is as JSON.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.Error()), nil }
