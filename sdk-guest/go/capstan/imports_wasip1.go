// The daemon, as a component sees it: each method of Daemon is an import of the contract.

package capstan

import (
	"encoding/json"
	"log/slog"
	"math"
	"time"

	witCache "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_cache"
	witConfig "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_config"
	witContext "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_context"
	witExpectations "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_expectations"
	witLog "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_log"
	witMemo "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_memo"
	witOperations "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_operations"
	witRecorder "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_recorder"
	witSources "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_sources"
	witSystem "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_system"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_types"
	witWorkflow "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_workflow"
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/runtime"
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// imports is the daemon itself: each method is one import of the contract.
type imports struct{}

// ask calls an import that cannot be refused.
func ask[T any](function func() T) T { return runtime.Import(function) }

// tell calls an import that answers nothing.
func tell(function func()) {
	runtime.Import(func() struct{} { function(); return struct{}{} })
}

// try calls an import that can be refused.
func try[T any](function func() types.Result[T, witTypes.CallError]) (T, error) {
	result := runtime.Import(function)
	if result.Tag() == types.ResultErr {
		err := result.Err()
		return result.Ok(), &CallError{Reason: Reason(err.Reason), Code: int(err.Code), Message: err.Message}
	}
	return result.Ok(), nil
}

func (imports) Run() *RunInfo {
	run := pointer(ask(witContext.Run))
	if run == nil {
		return nil
	}
	info := RunInfo{
		Controller:        run.Controller,
		PrimaryDeleted:    run.PrimaryDeleted,
		FinalStateUnknown: run.FinalStateUnknown,
	}
	if retry := pointer(run.Retry); retry != nil {
		state := retryOf(*retry)
		info.Retry = &state
	}
	return &info
}

func (imports) NextImminent() bool { return ask(witContext.NextImminent) }

func (imports) TimeLeft() time.Duration { return duration(ask(witContext.TimeLeftMs)) }

func (imports) Settings() string { return ask(witContext.Settings) }

func (imports) Config() string { return ask(witConfig.Get) }

func (imports) FindAll(query Query) (Page[string], error) {
	question := witCache.Query{
		Place:      placeOf(query.From),
		Selection:  selectionOf(query.Where),
		Labels:     optional(query.Labels),
		Fields:     query.Fields,
		NewestOnly: query.NewestOnly,
		After:      optional(query.After),
	}
	if query.Limit > 0 {
		question.Limit = types.Some(uint32(min(query.Limit, math.MaxUint32)))
	}
	page, err := try(func() types.Result[witTypes.Page, witTypes.CallError] { return witCache.FindAll(question) })
	return Page[string]{Items: page.Items, Next: page.Next.Some()}, err
}

func (imports) FindOne(place Place) (*string, error) {
	found, err := try(func() types.Result[types.Option[string], witTypes.CallError] {
		return witCache.FindOne(placeOf(place))
	})
	return pointer(found), err
}

func (imports) FindNamed(place Place, namespace, name string) (*string, error) {
	key := witTypes.ObjectKey{Namespace: optional(namespace), Name: name}
	found, err := try(func() types.Result[types.Option[string], witTypes.CallError] {
		return witCache.FindNamed(placeOf(place), key)
	})
	return pointer(found), err
}

func placeOf(place Place) witCache.Place {
	switch place.Sort {
	case InKind:
		return witCache.MakePlaceKind(witTypes.KindRef{ApiVersion: place.APIVersion, Kind: place.Kind})
	case InPrimaries:
		return witCache.MakePlacePrimaries()
	default:
		return witCache.MakePlaceSource(place.Source)
	}
}

func selectionOf(selection Selection) witCache.Selection {
	switch selection.Sort {
	case ByNamespace:
		return witCache.MakeSelectionNamespaced(selection.Namespace)
	case ByNothing:
		return witCache.MakeSelectionEverywhere()
	case ByIndex:
		return witCache.MakeSelectionIndexed(witCache.IndexEntry{Index: selection.Index, Key: selection.Key})
	default:
		return witCache.MakeSelectionRelated()
	}
}

type written = types.Result[string, witTypes.CallError]

func (imports) Write(verb Verb, object string, options WriteOptions) (string, error) {
	bound, err := writeOptionsOf(options)
	if err != nil {
		return "", err
	}
	return try(func() written {
		switch verb {
		case VerbCreate:
			return witOperations.Create(object, bound)
		case VerbForceApply:
			return witOperations.ForceApply(object, bound)
		case VerbUpdate:
			return witOperations.Update(object, bound)
		case VerbEdit:
			return witOperations.Edit(object, bound)
		default:
			return witOperations.Apply(object, bound)
		}
	})
}

func (imports) Patch(verb Verb, target ObjectRef, patch string, options WriteOptions) (string, error) {
	bound, err := writeOptionsOf(options)
	if err != nil {
		return "", err
	}
	return try(func() written {
		if verb == VerbJSONPatch {
			return witOperations.JsonPatch(refOf(target), patch, bound)
		}
		return witOperations.MergePatch(refOf(target), patch, bound)
	})
}

func (imports) Remove(target ObjectRef, options RemoveOptions) error {
	bound := witOperations.RemoveOptions{
		Propagation:     witOperations.Propagation(options.Propagation),
		Uid:             optional(options.UID),
		ResourceVersion: optional(options.ResourceVersion),
	}
	if options.GraceSeconds != nil {
		bound.GraceSeconds = types.Some(uint32(min(*options.GraceSeconds, math.MaxUint32)))
	}
	_, err := try(func() types.Result[types.Unit, witTypes.CallError] {
		return witOperations.Remove(refOf(target), types.Some(bound))
	})
	return err
}

func (imports) Finalize(verb Verb, finalizer string) (string, error) {
	return try(func() written {
		if verb == VerbAddFinalizer {
			return witOperations.AddFinalizer(optional(finalizer))
		}
		return witOperations.RemoveFinalizer(optional(finalizer))
	})
}

func (imports) Compare(by Comparison, actual, desired string, ignore []string) (string, error) {
	result, err := try(func() types.Result[witTypes.MatchResult, witTypes.CallError] {
		return witOperations.Compare(comparisonOf(max(by, ComparisonByVerb)), actual, desired, ignore)
	})
	if err != nil || result.Tag() == witTypes.MatchResultMatches {
		return "", err
	}
	return result.Differs(), nil
}

func writeOptionsOf(options WriteOptions) (types.Option[witOperations.WriteOptions], error) {
	bound := witOperations.WriteOptions{
		Mode:        witOperations.WriteMode(options.Mode),
		Subresource: optional(options.Subresource),
		Source:      optional(options.Source),
	}
	if options.CompareBy != comparisonOfMode {
		bound.CompareBy = types.Some(comparisonOf(options.CompareBy))
	}
	if !nothing(options.Actual) {
		actual, err := encode(options.Actual)
		if err != nil {
			return types.None[witOperations.WriteOptions](), within("actual", err)
		}
		bound.Actual = types.Some(actual)
	}
	return types.Some(bound), nil
}

// comparisonOf returns the contract's number, which lacks our first.
func comparisonOf(by Comparison) witOperations.Comparison {
	return witOperations.Comparison(by - ComparisonByVerb)
}

func refOf(target ObjectRef) witTypes.ObjectRef {
	return witTypes.ObjectRef{
		ApiVersion: target.APIVersion,
		Kind:       target.Kind,
		Namespace:  optional(target.Namespace),
		Name:       target.Name,
	}
}

func (imports) RunWorkflow(direction Direction, name string) (WorkflowResult, error) {
	result, err := try(func() types.Result[witWorkflow.WorkflowResult, witTypes.CallError] {
		if direction == Forth {
			return witWorkflow.Reconcile(optional(name))
		}
		return witWorkflow.Cleanup(optional(name))
	})
	return workflowResultOf(result), err
}

func (imports) RunDependent(direction Direction, name string) (NodeResult, error) {
	result, err := try(func() types.Result[witWorkflow.NodeResult, witTypes.CallError] {
		if direction == Forth {
			return witWorkflow.ReconcileDependent(name)
		}
		return witWorkflow.RemoveDependent(name)
	})
	return nodeResultOf(result), err
}

func (imports) LastResult(name string) *WorkflowResult {
	last := pointer(ask(func() types.Option[witWorkflow.WorkflowResult] { return witWorkflow.LastResult(optional(name)) }))
	if last == nil {
		return nil
	}
	result := workflowResultOf(*last)
	return &result
}

func workflowResultOf(result witWorkflow.WorkflowResult) WorkflowResult {
	nodes := make([]NodeResult, len(result.Nodes))
	for i, node := range result.Nodes {
		nodes[i] = nodeResultOf(node)
	}
	return WorkflowResult{Nodes: nodes, Complete: result.Complete}
}

// What can be done, and what conditions are for, in the order of the contract.
var (
	operations = [...]Operation{OperationUnchanged, OperationCreated, OperationUpdated, OperationDeleted}
	roles      = [...]ConditionRole{Activation, ReconcilePrecondition, ReadyPostcondition, DeletePostcondition}
)

func nodeResultOf(node witWorkflow.NodeResult) NodeResult {
	result := NodeResult{Name: node.Name, Failed: node.Failed.Some()}
	for _, done := range node.Done {
		result.Done = append(result.Done, ObjectResult{done.Key, operations[done.Operation]})
	}
	for _, condition := range node.Conditions {
		outcome := ConditionOutcome{Role: roles[condition.Role], Met: condition.Met}
		if detail := pointer(condition.Detail); detail != nil {
			outcome.Detail = json.RawMessage(*detail)
		}
		result.Conditions = append(result.Conditions, outcome)
	}
	return result
}

func (imports) Expect(name string, timeout time.Duration) error {
	ms := uint32(max(0, min(timeout.Milliseconds(), math.MaxUint32)))
	_, err := try(func() types.Result[types.Unit, witTypes.CallError] { return witExpectations.Expect(name, ms) })
	return err
}

func (imports) Expected() *Expectation {
	expected := pointer(ask(witExpectations.Pending))
	if expected == nil {
		return nil
	}
	return &Expectation{Name: expected.Name, TimedOut: expected.TimedOut}
}

func (imports) ClearExpectation(name string) bool {
	return ask(func() bool { return witExpectations.Clear(name) })
}

func (imports) Register(name, declaration string) (bool, error) {
	return try(func() types.Result[bool, witTypes.CallError] { return witSources.Register(name, declaration) })
}

func (imports) Deregister(name string) error {
	_, err := try(func() types.Result[types.Unit, witTypes.CallError] { return witSources.Deregister(name) })
	return err
}

func (imports) Remember(name, actual string, replaced *string) error {
	_, err := try(func() types.Result[types.Unit, witTypes.CallError] {
		return witSources.Remember(name, actual, option(replaced))
	})
	return err
}

func (imports) Forget(name, id string) error {
	_, err := try(func() types.Result[types.Unit, witTypes.CallError] { return witSources.Forget(name, id) })
	return err
}

func (imports) Memo(lifetime Lifetime, key string) *string {
	return pointer(ask(func() types.Option[string] { return witMemo.Get(witMemo.Lifetime(lifetime), key) }))
}

func (imports) SetMemo(lifetime Lifetime, key string, value *string) error {
	_, err := try(func() types.Result[types.Unit, witTypes.CallError] {
		return witMemo.Put(witMemo.Lifetime(lifetime), key, option(value))
	})
	return err
}

func (imports) Publish(event Event) {
	bound := witRecorder.Event{
		Severity:    witRecorder.SeverityNormal,
		Reason:      event.Reason,
		Message:     event.Message,
		Key:         optional(event.Key),
		Action:      optional(event.Action),
		Component:   optional(event.Component),
		Labels:      pairsOf(event.Labels),
		Annotations: pairsOf(event.Annotations),
	}
	if event.Warning {
		bound.Severity = witRecorder.SeverityWarning
	}
	tell(func() { witRecorder.Publish(bound) })
}

func pairsOf(texts map[string]string) []witTypes.Pair {
	pairs := make([]witTypes.Pair, 0, len(texts))
	for name, value := range texts {
		pairs = append(pairs, witTypes.Pair{Name: name, Value: value})
	}
	return pairs
}

func (imports) Log(level slog.Level, message string, fields [][2]string) {
	pairs := make([]witTypes.Pair, len(fields))
	for i, field := range fields {
		pairs[i] = witTypes.Pair{Name: field[0], Value: field[1]}
	}
	tell(func() { witLog.Write(levelOf(level), message, pairs) })
}

func levelOf(level slog.Level) witLog.Level {
	switch {
	case level < slog.LevelDebug:
		return witLog.LevelTrace
	case level < slog.LevelInfo:
		return witLog.LevelDebug
	case level < slog.LevelWarn:
		return witLog.LevelInfo
	case level < slog.LevelError:
		return witLog.LevelWarn
	default:
		return witLog.LevelError
	}
}

func (imports) Now() time.Time {
	ms := ask(witSystem.NowMs)
	return time.UnixMicro(int64(ms * 1000)).UTC()
}

func (imports) RandomBytes(count int) []byte {
	return ask(func() []byte { return witSystem.RandomBytes(uint32(max(0, count))) })
}

func (imports) UUID() string { return ask(witSystem.Uuid) }
