// Decides how a call of the daemon becomes a call of a registered function.

package capstan

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"runtime"
	"strings"
	"time"
)

// The registered functions as the contract has them: JSON in, answers with JSON out.
type (
	reconcilerFunc   func(run Run, primary string) (updateControl, error)
	cleanerFunc      func(run Run, primary string) (Deletion, error)
	errorHandlerFunc func(run Run, primary string, failure Failure) (errorControl, error)
	retryPolicyFunc  func(run Run, primary string, failed FailedRun) (NextRetry, error)
	validatorFunc    func(run Run, primary string) ([]Problem, error)
	initializerFunc  func(run Run, primary string) error
	desiredFunc      func(run Run, primary string) (string, error)
	desiredSetFunc   func(run Run, primary string) ([]string, error)
	matcherFunc      func(run Run, actual, desired, primary string) (string, error)
	conditionFunc    func(run Run, primary, dependent string) (conditionResult, error)

	pollerFunc         func(run Run) ([]primaryResources, error)
	resourcePollerFunc func(run Run, primary string) (pollResult, error)
)

// updateControl is an [Update] as the contract has it; documents are empty where nothing is written.
type updateControl struct {
	object, status, objectAndStatus string
	reschedule                      *uint32
}

// errorControl is an [Handled] as the contract has it.
type errorControl struct {
	handled    bool
	status     string
	noRetry    bool
	reschedule *uint32
	retryAfter *uint32
}

// conditionResult is a [Met] as the contract has it.
type conditionResult struct {
	met    bool
	detail string
}

// primaryResources is a [PrimaryThings] as the contract has it.
type primaryResources struct {
	namespace, name string
	resources       []string
}

// pollResult is a [Things] as the contract has it.
type pollResult struct {
	resources []string
	again     *uint32
}

func reconcilerOf[P any](function func(Run, *P) (Update, error)) reconcilerFunc {
	return func(run Run, text string) (updateControl, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return updateControl{}, err
		}
		update, err := function(run, primary)
		if err != nil {
			return updateControl{}, err
		}
		return update.control()
	}
}

func cleanerOf[P any](function func(Run, *P) (Deletion, error)) cleanerFunc {
	return func(run Run, text string) (Deletion, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return Deletion{}, err
		}
		deletion, err := function(run, primary)
		if err != nil {
			return Deletion{}, err
		}
		return deletion, nil
	}
}

func errorHandlerOf[P any](function func(Run, *P, Failure) (*Handled, error)) errorHandlerFunc {
	return func(run Run, text string, failure Failure) (errorControl, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return errorControl{}, err
		}
		control, err := function(run, primary, failure)
		if err != nil {
			return errorControl{}, err
		}
		return control.control()
	}
}

func retryPolicyOf[P any](function func(Run, *P, FailedRun) (NextRetry, error)) retryPolicyFunc {
	return func(run Run, text string, failed FailedRun) (NextRetry, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return NextRetry{}, err
		}
		next, err := function(run, primary, failed)
		if err != nil {
			return NextRetry{}, err
		}
		if next.Stop && next.After != 0 {
			return NextRetry{}, errors.New("Stop and After exclude each other")
		}
		return next, nil
	}
}

func validatorOf[P any](function func(Run, *P) ([]Problem, error)) validatorFunc {
	return func(run Run, text string) ([]Problem, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return nil, err
		}
		return function(run, primary)
	}
}

func initializerOf[P any](function func(Run, *P) error) initializerFunc {
	return func(run Run, text string) error {
		primary, err := primaryOf[P](text)
		if err != nil {
			return err
		}
		return function(run, primary)
	}
}

func desiredOf[P, T any](function func(Run, *P) (T, error)) desiredFunc {
	return func(run Run, text string) (string, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return "", err
		}
		object, err := function(run, primary)
		if err != nil {
			return "", err
		}
		if nothing(object) {
			return "", errors.New("the desired state is nil: that a dependent should not exist is said by a precondition of the manifest")
		}
		return encode(object)
	}
}

func desiredSetOf[P, T any](function func(Run, *P) ([]T, error)) desiredSetFunc {
	return func(run Run, text string) ([]string, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return nil, err
		}
		objects, err := function(run, primary)
		if err != nil {
			return nil, err
		}
		texts := make([]string, len(objects))
		for i, object := range objects {
			if nothing(object) {
				return nil, fmt.Errorf("object %d of the desired set is nil: leave out what should not exist", i)
			}
			if texts[i], err = encode(object); err != nil {
				return nil, within(fmt.Sprintf("object %d of the desired set", i), err)
			}
		}
		return texts, nil
	}
}

func matcherOf[P, T any](function func(Run, *T, *T, *P) (string, error)) matcherFunc {
	return func(run Run, actual, desired, text string) (string, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return "", err
		}
		is, err := decode[T](actual)
		if err != nil {
			return "", within("the actual object", err)
		}
		should, err := decode[T](desired)
		if err != nil {
			return "", within("the desired object", err)
		}
		return function(run, &is, &should, primary)
	}
}

func conditionOf[P any, R bool | Met](function func(Run, *P, string) (R, error)) conditionFunc {
	return func(run Run, text, dependent string) (conditionResult, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return conditionResult{}, err
		}
		answer, err := function(run, primary, dependent)
		if err != nil {
			return conditionResult{}, err
		}
		switch answer := any(answer).(type) {
		case Met:
			if nothing(answer.Detail) {
				return conditionResult{met: answer.Met}, nil
			}
			detail, err := encode(answer.Detail)
			return conditionResult{answer.Met, detail}, within("detail", err)
		case bool:
			return conditionResult{met: answer}, nil
		}
		panic("a condition answers a bool or a Met")
	}
}

func pollerOf(function func(Run) ([]PrimaryThings, error)) pollerFunc {
	return func(run Run) ([]primaryResources, error) {
		polled, err := function(run)
		if err != nil {
			return nil, err
		}
		all := make([]primaryResources, len(polled))
		for i, one := range polled {
			resources, err := itemsOf(one.Things)
			if err != nil {
				return nil, within("the things of "+one.Name, err)
			}
			all[i] = primaryResources{one.Namespace, one.Name, resources}
		}
		return all, nil
	}
}

func resourcePollerOf[P any](function func(Run, *P) (Things, error)) resourcePollerFunc {
	return func(run Run, text string) (pollResult, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return pollResult{}, err
		}
		things, err := function(run, primary)
		if err != nil {
			return pollResult{}, err
		}
		resources, err := itemsOf(things.Things)
		return pollResult{resources, millis(things.Again)}, within("the things", err)
	}
}

// itemsOf returns the items of a list, each as JSON.
func itemsOf(list any) ([]string, error) {
	if nothing(list) {
		return nil, nil
	}
	text, err := encode(list)
	if err != nil {
		return nil, err
	}
	items, err := decode[[]json.RawMessage](text)
	if err != nil {
		return nil, fmt.Errorf("no list, but a %T", list)
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = string(item)
	}
	return texts, nil
}

func primaryOf[P any](text string) (*P, error) {
	primary, err := decode[P](text)
	return &primary, within("the primary", err)
}

// control returns the update as the contract has it.
func (u Update) control() (updateControl, error) {
	control := updateControl{reschedule: millis(u.Reschedule)}
	object := "{}"
	if !nothing(u.Object) {
		var err error
		if object, err = encode(u.Object); err != nil {
			return control, within("object", err)
		}
	}
	if !nothing(u.Status) {
		var err error
		if object, err = withField(object, u.Status, "status"); err != nil {
			return control, within("status", err)
		}
	}
	if u.OnlyAt != "" {
		var err error
		if object, err = withField(object, u.OnlyAt, "metadata", "resourceVersion"); err != nil {
			return control, within("object", err)
		}
	}
	switch {
	case nothing(u.Object) && nothing(u.Status):
	case nothing(u.Status):
		control.object = object
	case nothing(u.Object):
		control.status = object
	default:
		control.objectAndStatus = object
	}
	return control, nil
}

// control returns the error control as the contract has it.
func (c *Handled) control() (errorControl, error) {
	if c == nil {
		return errorControl{}, nil
	}
	if c.Stop && c.RetryAfter != 0 || c.Stop && c.Reschedule != 0 || c.RetryAfter != 0 && c.Reschedule != 0 {
		return errorControl{}, errors.New("Stop, RetryAfter and Reschedule exclude each other")
	}
	control := errorControl{
		handled:    true,
		noRetry:    c.Stop,
		reschedule: millis(c.Reschedule),
		retryAfter: millis(c.RetryAfter),
	}
	if nothing(c.Status) {
		return control, nil
	}
	status, err := withField("{}", c.Status, "status")
	control.status = status
	return control, within("status", err)
}

// fromZero returns an error for a time that is negative.
func fromZero(field string, delay time.Duration) error {
	if delay < 0 {
		return fmt.Errorf("%s: %v is negative", field, delay)
	}
	return nil
}

// millis returns the whole milliseconds that the contract can say; nil for no delay at all. A time that has passed is now: time.Until says so.
func millis(delay time.Duration) *uint32 {
	if delay == 0 {
		return nil
	}
	ms := uint32(max(0, min(delay.Milliseconds(), math.MaxUint32)))
	return &ms
}

func serveReconcile(run Run, primary string) (updateControl, error) {
	controller := controllerOf(run)
	function := lookUp[reconcilerFunc](reconciler, controller, "")
	if function == nil {
		return updateControl{}, unserved(reconciler, controller)
	}
	return guarded(run, func() (updateControl, error) { return function(run, primary) })
}

func serveCleanup(run Run, primary string) (Deletion, error) {
	function := lookUp[cleanerFunc](cleaner, controllerOf(run), "")
	if function == nil {
		// This controller has nothing to tidy up; another one of the component has.
		return Deletion{}, nil
	}
	return guarded(run, func() (Deletion, error) { return function(run, primary) })
}

func serveHandleError(run Run, primary string, failure Failure) (errorControl, error) {
	function := lookUp[errorHandlerFunc](errorHandler, controllerOf(run), "")
	if function == nil {
		// This controller leaves failures to the daemon; another one of the component does not.
		return errorControl{}, nil
	}
	return guarded(run, func() (errorControl, error) { return function(run, primary, failure) })
}

func serveDecideRetry(run Run, primary string, failed FailedRun) (NextRetry, error) {
	function := lookUp[retryPolicyFunc](retryPolicy, controllerOf(run), "")
	if function == nil {
		// This controller leaves that to the manifest; another one of the component does not.
		return NextRetry{}, nil
	}
	return guarded(run, func() (NextRetry, error) { return function(run, primary, failed) })
}

func serveValidate(run Run, primary string) ([]Problem, error) {
	function := lookUp[validatorFunc](validator, controllerOf(run), "")
	if function == nil {
		// This controller finds nothing wrong; another one of the component may.
		return nil, nil
	}
	return guarded(run, func() ([]Problem, error) { return function(run, primary) })
}

func serveInitialize(run Run, primary string) error {
	function := lookUp[initializerFunc](initializer, controllerOf(run), "")
	if function == nil {
		// This controller has nothing to prepare; another one of the component has.
		return nil
	}
	_, err := guarded(run, func() (struct{}, error) { return struct{}{}, function(run, primary) })
	return err
}

func serveDesired(run Run, name, primary string) (string, error) {
	controller := controllerOf(run)
	function := lookUp[desiredFunc](desired, controller, name)
	if function == nil {
		return "", unknown(desired, controller, name)
	}
	return guarded(run, func() (string, error) { return function(run, primary) })
}

func serveDesiredSet(run Run, name, primary string) ([]string, error) {
	controller := controllerOf(run)
	function := lookUp[desiredSetFunc](desiredSet, controller, name)
	if function == nil {
		return nil, unknown(desiredSet, controller, name)
	}
	return guarded(run, func() ([]string, error) { return function(run, primary) })
}

func serveMatch(run Run, name, actual, wanted, primary string) (string, error) {
	controller := controllerOf(run)
	function := lookUp[matcherFunc](matcher, controller, name)
	if function == nil {
		return "", unknown(matcher, controller, name)
	}
	return guarded(run, func() (string, error) { return function(run, actual, wanted, primary) })
}

func serveIsMet(run Run, name, dependent, primary string) (conditionResult, error) {
	controller := controllerOf(run)
	function := lookUp[conditionFunc](condition, controller, name)
	if function == nil {
		return conditionResult{}, unknown(condition, controller, name)
	}
	return guarded(run, func() (conditionResult, error) { return function(run, primary, dependent) })
}

func servePoll(run Run, name string) ([]primaryResources, error) {
	controller := controllerOf(run)
	function := lookUp[pollerFunc](poller, controller, name)
	if function == nil {
		return nil, unknown(poller, controller, name)
	}
	return guarded(run, func() ([]primaryResources, error) { return function(run) })
}

func servePollOne(run Run, name, primary string) (pollResult, error) {
	controller := controllerOf(run)
	function := lookUp[resourcePollerFunc](resourcePoller, controller, name)
	if function == nil {
		return pollResult{}, unknown(resourcePoller, controller, name)
	}
	return guarded(run, func() (pollResult, error) { return function(run, primary) })
}

// controllerOf returns the controller that is called for, in a run or beside all runs: validators, pollers, receivers, filters and mappers belong
// to none.
func controllerOf(run Run) string {
	if info := run.ask().Run(); info != nil {
		return info.Controller
	}
	settings, err := run.Settings[struct {
		Controller struct {
			Name string `json:"name"`
		} `json:"controller"`
	}]()
	if err != nil {
		return ""
	}
	return settings.Controller.Name
}

// guarded calls a function of the author, and sees to it that the daemon understands what becomes of it.
func guarded[T any](run Run, function func() (T, error)) (T, error) {
	answer, err := caught(run, func() (T, error) {
		answer, err := function()
		return answer, errorInUTF8(err)
	})
	return answerInUTF8(answer), errorInUTF8(err)
}

// caught calls a function. Its panic becomes an error, and its stack a line of the log.
func caught[T any](run Run, function func() (T, error)) (answer T, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			frames := panicFrames()
			err = fmt.Errorf("panic: %v", panicked)
			if len(frames) > 0 {
				err = fmt.Errorf("panic: %v (in %s)", panicked, frames[0])
			}
			run.Log().Error("panic", "panic", fmt.Sprint(panicked), "stack", strings.Join(frames, " < "))
		}
	}()
	return function()
}

// panicFrames returns the functions that led to the panic, innermost first, without those of the runtime and of this
// package. It is called by the deferred function of caught, which guarded calls.
func panicFrames() []string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	var names []string
	panicking := false
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicking = true
		case panicking && strings.HasPrefix(frame.Function, ours+"guarded"):
			return names
		case strings.HasPrefix(frame.Function, "runtime."), strings.HasPrefix(frame.Function, ours):
		case panicking:
			names = append(names, fmt.Sprintf("%s %s:%d", path.Base(frame.Function), path.Base(frame.File), frame.Line))
		}
		if !more {
			return names
		}
	}
}

// ours is how the names of this package's functions begin.
var ours = reflect.TypeFor[Run]().PkgPath() + "."
