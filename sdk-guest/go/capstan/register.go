// Keeps what an operator registers, and finds it by controller and name.

package capstan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Reconcile registers what brings the world in line with a primary, whose type P names the fields that are read. It is called
// after the managed workflow; an error is retried as the manifest says.
//
// All registering is done in init functions: what is registered then is what the component exports.
func Reconcile[P any](function func(run Run, primary *P) (Update, error)) {
	Controller("").Reconcile(function)
}

// Cleanup registers what tidies up before a primary goes. It makes the daemon use a finalizer.
func Cleanup[P any](function func(run Run, primary *P) (Deletion, error)) {
	Controller("").Cleanup(function)
}

// HandleError registers what decides what a failed run leaves behind. It is called after a failure of Reconcile, or of the
// managed workflow before it.
func HandleError[P any](function func(run Run, primary *P, failure Failure) (*Handled, error)) {
	Controller("").HandleError(function)
}

// DecideRetry registers what decides when a failed run is retried. It is called after a failure of a run that reconciles or cleans
// up, when a retry would follow. An error leaves the delay to the manifest.
func DecideRetry[P any](function func(run Run, primary *P, failed FailedRun) (NextRetry, error)) {
	Controller("").DecideRetry(function)
}

// Validate registers what says whether a primary is one that the component can work with. It is called before anything else in each run
// that reconciles, and sees the primary alone: of what the daemon offers, [Run.Config] and the log work there. It returns what is wrong;
// nothing is written then but the status, until the primary changes. An error is one of the run, and is retried.
func Validate[P any](function func(run Run, primary *P) ([]Problem, error)) {
	Controller("").Validate(function)
}

// Initialize registers what prepares a run. It is called first in each run, before the managed workflow, whether the run will
// reconcile or clean up; it usually puts values into memos [ForRun] for the calls that follow. An error is one of the run, which
// ends with it.
func Initialize[P any](function func(run Run, primary *P) error) {
	Controller("").Initialize(function)
}

// Desired registers what a dependent should look like. The function returns anything that encoding/json writes as the
// object; its namespace defaults to the primary's. Under another name than before it is another object; what becomes of the former one
// is said by onRename in the manifest.
func Desired[P, T any](dependent string, function func(run Run, primary *P) (T, error)) {
	Controller("").Desired(dependent, function)
}

// DesiredSet registers of which objects a dependent with "bulk: true" in the manifest should consist. The function returns all of them,
// each anything that encoding/json writes as the object; the same name and namespace once. What the daemon has made for this dependent
// and primary beyond them is deleted first.
func DesiredSet[P, T any](dependent string, function func(run Run, primary *P) ([]T, error)) {
	Controller("").DesiredSet(dependent, function)
}

// Match registers an own comparison of dependents, under the name that the manifest has after "export:", or else that of
// the dependent. The function says what differs, which is logged; empty if nothing does.
func Match[P, T any](name string, function func(run Run, actual, desired *T, primary *P) (differs string, err error)) {
	Controller("").Match(name, function)
}

// Condition registers a condition of a workflow, under the name that the manifest has after "export:". The function says
// whether it is met for a dependent, whose objects are read with [Run.Secondary]: a bool, or a [Met] to add a
// detail.
func Condition[P any, R bool | Met](name string, function func(run Run, primary *P, dependent string) (R, error)) {
	Controller("").Condition(name, function)
}

// Poll registers what reads things outside of the cluster for all primaries at once, under the name of a source with "poll". A primary
// that is not in the answer has none. An error keeps what was known, and is tried again. It is called when it is time, outside of all
// runs; what it answers is read with [Run.Secondaries].
func Poll(source string, function func(run Run) ([]PrimaryThings, error)) {
	Controller("").Poll(source, function)
}

// PollOne registers what reads things outside of the cluster for one primary, under the name of a source with "pollEach", or with
// "inbound" and "fetch". An error keeps what was known, and is tried again. It is called when it is time, by the first look of a run at the
// things of a primary, and when a request has only said that something has changed, always outside of the run.
func PollOne[P any](source string, function func(run Run, primary *P) (Things, error)) {
	Controller("").PollOne(source, function)
}

// Controller registers functions for one controller of the manifest, where a component serves several:
//
//	theme := capstan.Controller("theme")
//	theme.Reconcile(reconcileTheme)
//
// What is registered without a controller is for those that have nothing of their own.
type Controller string

// Reconcile is like the function [Reconcile], for one controller.
func (c Controller) Reconcile[P any](function func(run Run, primary *P) (Update, error)) {
	c.register(reconciler, "", function == nil, reconcilerOf(function))
}

// Cleanup is like the function [Cleanup], for one controller.
func (c Controller) Cleanup[P any](function func(run Run, primary *P) (Deletion, error)) {
	c.register(cleaner, "", function == nil, cleanerOf(function))
}

// HandleError is like the function [HandleError], for one controller.
func (c Controller) HandleError[P any](function func(run Run, primary *P, failure Failure) (*Handled, error)) {
	c.register(errorHandler, "", function == nil, errorHandlerOf(function))
}

// DecideRetry is like the function [DecideRetry], for one controller.
func (c Controller) DecideRetry[P any](function func(run Run, primary *P, failed FailedRun) (NextRetry, error)) {
	c.register(retryPolicy, "", function == nil, retryPolicyOf(function))
}

// Validate is like the function [Validate], for one controller.
func (c Controller) Validate[P any](function func(run Run, primary *P) ([]Problem, error)) {
	c.register(validator, "", function == nil, validatorOf(function))
}

// Initialize is like the function [Initialize], for one controller.
func (c Controller) Initialize[P any](function func(run Run, primary *P) error) {
	c.register(initializer, "", function == nil, initializerOf(function))
}

// Desired is like the function [Desired], for one controller.
func (c Controller) Desired[P, T any](dependent string, function func(run Run, primary *P) (T, error)) {
	c.register(desired, dependent, function == nil, desiredOf(function))
}

// DesiredSet is like the function [DesiredSet], for one controller.
func (c Controller) DesiredSet[P, T any](dependent string, function func(run Run, primary *P) ([]T, error)) {
	c.register(desiredSet, dependent, function == nil, desiredSetOf(function))
}

// Match is like the function [Match], for one controller.
func (c Controller) Match[P, T any](name string, function func(run Run, actual, desired *T, primary *P) (differs string, err error)) {
	c.register(matcher, name, function == nil, matcherOf(function))
}

// Condition is like the function [Condition], for one controller.
func (c Controller) Condition[P any, R bool | Met](name string, function func(run Run, primary *P, dependent string) (R, error)) {
	c.register(condition, name, function == nil, conditionOf(function))
}

// Poll is like the function [Poll], for one controller.
func (c Controller) Poll(source string, function func(run Run) ([]PrimaryThings, error)) {
	c.register(poller, source, function == nil, pollerOf(function))
}

// PollOne is like the function [PollOne], for one controller.
func (c Controller) PollOne[P any](source string, function func(run Run, primary *P) (Things, error)) {
	c.register(resourcePoller, source, function == nil, resourcePollerOf(function))
}

// kind is a sort of registered function.
type kind struct {
	// The interface of the contract, as a component exports it.
	export string
	// What it is for people.
	noun string
	// The function that registers it.
	verb string
}

var (
	reconciler   = &kind{"reconciler", "reconciler", "Reconcile"}
	cleaner      = &kind{"cleaner", "cleaner", "Cleanup"}
	errorHandler = &kind{"error-handler", "error handler", "HandleError"}
	retryPolicy  = &kind{"retry-policy", "retry policy", "DecideRetry"}
	validator    = &kind{"validator", "validator", "Validate"}
	initializer  = &kind{"initializer", "initializer", "Initialize"}
	desired      = &kind{"dependent", "desired state for", "Desired"}
	desiredSet   = &kind{"bulk", "desired set for", "DesiredSet"}
	matcher      = &kind{"matcher", "matcher", "Match"}
	creator      = &kind{"external", "creator of", "CreateExternal"}
	updater      = &kind{"external", "updater of", "UpdateExternal"}
	remover      = &kind{"external", "remover of", "RemoveExternal"}
	condition    = &kind{"condition", "condition", "Condition"}

	poller         = &kind{"poller", "poller of", "Poll"}
	resourcePoller = &kind{"resource-poller", "resource poller of", "PollOne"}

	receiver = &kind{"inbound", "receiver of", "Receive"}

	filter          = &kind{"filter", "filter", "Filter"}
	mapper          = &kind{"mapper", "mapper", "ToPrimaries"}
	secondaryMapper = &kind{"secondary-mapper", "secondary mapper", "ToSecondaries"}
)

// namedKinds are registered under a name.
var namedKinds = []*kind{desired, desiredSet, creator, updater, remover, matcher, condition, poller, resourcePoller, receiver, filter, mapper, secondaryMapper}

// entry is a registered function.
type entry struct {
	kind       *kind
	controller string
	name       string
	// A function of one of the types in serve.go.
	function any
}

// registered has all functions, in the order of their registration.
var registered []entry

// register adds a function; a mistake is one of the program and ends it at its start.
func (c Controller) register(kind *kind, name string, missing bool, function any) {
	call := "capstan." + kind.verb
	if c != "" {
		call = fmt.Sprintf("capstan.Controller(%q).%s", string(c), kind.verb)
	}
	named := slices.Contains(namedKinds, kind)
	if named {
		call += fmt.Sprintf("(%q)", name)
	}
	switch {
	case missing:
		panic(call + ": the function is nil")
	case named && name == "":
		panic(call + ": the name is empty")
	case !utf8.ValidString(string(c) + name):
		panic(call + ": the name is not UTF-8")
	case find(kind, string(c), name) != nil:
		panic(call + " is called twice")
	}
	registered = append(registered, entry{kind, string(c), name, function})
	describe(registered[len(registered)-1])
}

// find returns what is registered for exactly this.
func find(kind *kind, controller, name string) *entry {
	at := slices.IndexFunc(registered, func(e entry) bool {
		return e.kind == kind && e.controller == controller && e.name == name
	})
	if at < 0 {
		return nil
	}
	return &registered[at]
}

// lookUp returns the function for a controller, its own or that of all; nil if there is none, or it is for other
// controllers.
func lookUp[F any](kind *kind, controller, name string) F {
	found := find(kind, controller, name)
	if found == nil {
		found = find(kind, "", name)
	}
	if found == nil {
		var none F
		return none
	}
	return found.function.(F)
}

// unknown returns the error for a name that the component does not know: it says which there are.
func unknown(kind *kind, controller, name string) error {
	var known []string
	for _, e := range registered {
		if e.kind == kind && (e.controller == "" || e.controller == controller) {
			known = append(known, e.name)
		}
	}
	return fmt.Errorf("this component has no %s `%s`; it has: %s", kind.noun, name, listed(known))
}

// unserved returns the error for a controller that the component does not know.
func unserved(kind *kind, controller string) error {
	var known []string
	for _, e := range registered {
		if e.kind == kind && e.controller != "" {
			known = append(known, e.controller)
		}
	}
	return fmt.Errorf("this component has no %s for the controller `%s`; it has: %s", kind.noun, controller, listed(known))
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Registration is a function that is registered.
type Registration struct {
	// Interface is the contract's, such as "reconciler" or "dependent".
	Interface string `json:"interface"`
	// Controller is the controller's name; empty if it is for all.
	Controller string `json:"controller,omitempty"`
	// Name is the dependent, matcher, condition, polled source, filter or mapper; empty for the others.
	Name string `json:"name,omitempty"`
}

// Registered returns what is registered, for tests that compare it with a manifest.
func Registered() []Registration {
	all := make([]Registration, len(registered))
	for i, e := range registered {
		all[i] = Registration{e.kind.export, e.controller, e.name}
	}
	return all
}

// known has the names that an interface answers to, for one controller or, if that is empty, for all.
type known struct {
	export, controller string
	// Nil if its function takes no name.
	names []string
}

// described returns what is registered by interface and controller, as the daemon compares it with a manifest.
func described() []known {
	var all []known
	for _, e := range registered {
		at := slices.IndexFunc(all, func(k known) bool { return k.export == e.kind.export && k.controller == e.controller })
		if at < 0 {
			at = len(all)
			all = append(all, known{export: e.kind.export, controller: e.controller})
		}
		if slices.Contains(namedKinds, e.kind) {
			all[at].names = append(all[at].names, e.name)
		}
	}
	return all
}

// nothing says whether a value is nil, or a pointer, map or the like that is.
func nothing(value any) bool {
	if value == nil {
		return true
	}
	switch of := reflect.ValueOf(value); of.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return of.IsNil()
	default:
		return false
	}
}
