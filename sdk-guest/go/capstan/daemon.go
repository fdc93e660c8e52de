// What a run asks, as an interface.

package capstan

import (
	"log/slog"
	"time"
)

// Daemon is what a component may ask of the daemon during a call. Authors use it by way of [Run]; it is an interface so that
// something else can stand in for it, as capstantest.Daemon does in unit tests. JSON documents are strings here.
type Daemon interface {
	// Run returns what is known about the run; nil outside of one.
	Run() *RunInfo
	// NextImminent says whether another run follows at once.
	NextImminent() bool
	// TimeLeft returns how long the current call may still take.
	TimeLeft() time.Duration
	// Settings returns the settings in force.
	Settings() string
	// Config returns the plugin's own configuration.
	Config() string

	// FindAll returns many objects of the caches.
	FindAll(query Query) (Page[string], error)
	// FindOne returns the one object that belongs to the primary; nil if there is none.
	FindOne(place Place) (*string, error)
	// FindNamed returns an object by its name; nil if there is none.
	FindNamed(place Place, namespace, name string) (*string, error)

	// Write creates, applies, updates or edits an object, and returns it as it is then.
	Write(verb Verb, object string, options WriteOptions) (string, error)
	// Patch changes an object by one of the two patches, and returns it as it is then.
	Patch(verb Verb, target ObjectRef, patch string, options WriteOptions) (string, error)
	// Remove deletes an object.
	Remove(target ObjectRef, options RemoveOptions) error
	// Finalize adds a finalizer to the primary or removes one, the controller's if it is empty.
	Finalize(verb Verb, finalizer string) (string, error)
	// Compare says what differs; empty if nothing does.
	Compare(by Comparison, actual, desired string, ignore []string) (string, error)

	// RunWorkflow reconciles a workflow or cleans it up; the managed one if the name is empty.
	RunWorkflow(direction Direction, name string) (WorkflowResult, error)
	// RunDependent reconciles a standalone dependent or removes it.
	RunDependent(direction Direction, name string) (NodeResult, error)
	// LastResult returns what became of a workflow in this run; nil if it has not run.
	LastResult(name string) *WorkflowResult

	// Expect expects something of the primary, in place of anything else.
	Expect(name string, timeout time.Duration) error
	// Expected returns what is expected of the primary; nil if nothing is.
	Expected() *Expectation
	// ClearExpectation expects this no more, and returns whether it was expected.
	ClearExpectation(name string) bool

	// Register starts a source, and returns whether it is new.
	Register(name, declaration string) (bool, error)
	// Deregister stops a source that was registered.
	Deregister(name string) error
	// Remember takes in a thing that was made, or put in the place of another, outside of the cluster.
	Remember(name, actual string, replaced *string) error
	// Forget takes in that a thing outside of the cluster was removed.
	Forget(name, id string) error

	// Memo returns a value that is kept; nil if there is none.
	Memo(lifetime Lifetime, key string) *string
	// SetMemo keeps a value; nil removes it.
	SetMemo(lifetime Lifetime, key string, value *string) error

	// Publish records a Kubernetes Event.
	Publish(event Event)
	// Log writes a line. Fields come in order.
	Log(level slog.Level, message string, fields [][2]string)
	// Now returns the time.
	Now() time.Time
	// RandomBytes returns random bytes, at most 4096.
	RandomBytes(count int) []byte
	// UUID returns a random UUID.
	UUID() string
}

// Verb is what a write does.
type Verb string

// The verbs.
const (
	VerbCreate          Verb = "create"
	VerbApply           Verb = "apply"
	VerbForceApply      Verb = "force-apply"
	VerbUpdate          Verb = "update"
	VerbEdit            Verb = "edit"
	VerbJSONPatch       Verb = "json-patch"
	VerbMergePatch      Verb = "merge-patch"
	VerbRemove          Verb = "remove"
	VerbAddFinalizer    Verb = "add-finalizer"
	VerbRemoveFinalizer Verb = "remove-finalizer"
)

// Direction says whether something is to be there or not.
type Direction bool

// The directions.
const (
	// Forth reconciles.
	Forth Direction = true
	// Back cleans up.
	Back Direction = false
)
