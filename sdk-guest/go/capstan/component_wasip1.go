// Joins the exports of a component to the registered functions: from the contract's types to ours and back.

package capstan

import (
	"log"
	"log/slog"
	"time"

	witCleaner "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_cleaner"
	witCondition "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_condition"
	witDescription "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_description"
	witErrorHandler "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_error_handler"
	witExternal "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_external"
	witFilter "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_filter"
	witInbound "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_inbound"
	witPoller "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_poller"
	witReconciler "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_reconciler"
	witResourcePoller "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_resource_poller"
	witRetryPolicy "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_retry_policy"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_types"
	witValidator "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_validator"
	exportBulk "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_bulk"
	exportCleaner "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_cleaner"
	exportCondition "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_condition"
	exportDependent "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_dependent"
	exportDescription "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_description"
	exportErrorHandler "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_error_handler"
	exportExternal "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_external"
	exportFilter "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_filter"
	exportInbound "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_inbound"
	exportInitializer "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_initializer"
	exportMapper "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_mapper"
	exportMatcher "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_matcher"
	exportPoller "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_poller"
	exportReconciler "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_reconciler"
	exportResourcePoller "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_resource_poller"
	exportRetryPolicy "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_retry_policy"
	exportSecondaryMapper "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_secondary_mapper"
	exportValidator "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/export_capstan_operator_validator"

	// Exports all functions; the world that the build makes says which of them the component has.
	_ "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/wit_exports"
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/runtime"
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

func init() {
	slog.SetDefault(slog.New(logHandler{daemon: askingInUTF8{imports{}}}))
	log.SetFlags(0)
	exportReconciler.Reconcile = func(primary string) types.Result[witReconciler.UpdateControl, string] {
		return serve(bindUpdate, func(run Run) (updateControl, error) { return serveReconcile(run, primary) })
	}
	exportCleaner.Cleanup = func(primary string) types.Result[witCleaner.DeleteControl, string] {
		return serve(bindDeletion, func(run Run) (Deletion, error) { return serveCleanup(run, primary) })
	}
	exportErrorHandler.HandleError = func(primary string, failed witErrorHandler.FailureInfo) types.Result[witErrorHandler.ErrorControl, string] {
		return serve(bindErrorControl, func(run Run) (errorControl, error) { return serveHandleError(run, primary, failureOf(failed)) })
	}
	exportRetryPolicy.DecideRetry = func(primary string, failed witRetryPolicy.FailedRun) types.Result[witRetryPolicy.NextRetry, string] {
		return serve(bindNextRetry, func(run Run) (NextRetry, error) { return serveDecideRetry(run, primary, failedOf(failed)) })
	}
	exportValidator.Validate = func(primary string, _ types.Option[string]) types.Result[[]witValidator.Problem, string] {
		return serve(bindProblems, func(run Run) ([]Problem, error) { return serveValidate(run, primary) })
	}
	exportInitializer.Initialize = func(primary string) types.Result[types.Unit, string] {
		return serve(func(struct{}) types.Unit { return types.Unit{} }, func(run Run) (struct{}, error) { return struct{}{}, serveInitialize(run, primary) })
	}
	exportDependent.Desired = func(name, primary string) types.Result[string, string] {
		return serve(func(object string) string { return object }, func(run Run) (string, error) { return serveDesired(run, name, primary) })
	}
	exportBulk.DesiredSet = func(name, primary string) types.Result[[]string, string] {
		return serve(func(objects []string) []string { return objects }, func(run Run) ([]string, error) { return serveDesiredSet(run, name, primary) })
	}
	exportExternal.Create = func(name, desired, primary string) types.Result[witExternal.Created, string] {
		return serve(bindCreated, func(run Run) (created, error) { return serveCreate(run, name, desired, primary) })
	}
	exportExternal.Update = func(name, actual, desired, primary string) types.Result[string, string] {
		return serve(func(thing string) string { return thing }, func(run Run) (string, error) { return serveUpdate(run, name, actual, desired, primary) })
	}
	exportExternal.Remove = func(name, actual, primary string) types.Result[types.Unit, string] {
		return serve(func(struct{}) types.Unit { return types.Unit{} }, func(run Run) (struct{}, error) { return struct{}{}, serveRemove(run, name, actual, primary) })
	}
	exportMatcher.Match = func(name, actual, desired, primary string) types.Result[witTypes.MatchResult, string] {
		return serve(bindMatch, func(run Run) (string, error) { return serveMatch(run, name, actual, desired, primary) })
	}
	exportCondition.IsMet = func(name, dependent, primary string) types.Result[witCondition.ConditionResult, string] {
		return serve(bindCondition, func(run Run) (conditionResult, error) { return serveIsMet(run, name, dependent, primary) })
	}
	exportPoller.Poll = func(name string) types.Result[[]witPoller.PrimaryResources, string] {
		return serve(bindPolled, func(run Run) ([]primaryResources, error) { return servePoll(run, name) })
	}
	exportResourcePoller.PollOne = func(name, primary string) types.Result[witResourcePoller.PollResult, string] {
		return serve(bindPollResult, func(run Run) (pollResult, error) { return servePollOne(run, name, primary) })
	}
	exportInbound.Receive = func(name string, of witInbound.InboundRequest) types.Result[witInbound.InboundAnswer, string] {
		return serve(bindAnswer, func(run Run) (answer, error) { return serveReceive(run, name, requestOf(of)) })
	}
	exportFilter.Accepts = func(name string, change witFilter.Change) types.Result[bool, string] {
		return serve(func(accepted bool) bool { return accepted }, func(run Run) (bool, error) { return serveAccepts(run, name, changeOf(change)) })
	}
	exportMapper.ToPrimaries = func(name, secondary string) types.Result[[]witTypes.ObjectKey, string] {
		return serve(bindKeys, func(run Run) ([]Key, error) { return serveToPrimaries(run, name, secondary) })
	}
	exportDescription.Describe = func() types.Result[[]witDescription.KnownNames, string] {
		return serve(bindDescription, func(Run) ([]known, error) { return described(), nil })
	}
	exportSecondaryMapper.ToSecondaries = func(name, primary string) types.Result[[]witTypes.ObjectKey, string] {
		return serve(bindKeys, func(run Run) ([]Key, error) { return serveToSecondaries(run, name, primary) })
	}
}

// describe has nothing to do in a component: the build asks the native program.
func describe(entry) {}

// serve answers a call of the daemon.
func serve[A, B any](bind func(A) B, function func(run Run) (A, error)) types.Result[B, string] {
	return runtime.Call(func() types.Result[B, string] {
		answer, err := function(On(imports{}))
		if err != nil {
			return types.Err[B](err.Error())
		}
		return types.Ok[B, string](bind(answer))
	})
}

func bindUpdate(control updateControl) witReconciler.UpdateControl {
	update := witReconciler.MakePrimaryUpdateNothing()
	switch {
	case control.object != "":
		update = witReconciler.MakePrimaryUpdateObject(control.object)
	case control.status != "":
		update = witReconciler.MakePrimaryUpdateStatus(control.status)
	case control.objectAndStatus != "":
		update = witReconciler.MakePrimaryUpdateObjectAndStatus(control.objectAndStatus)
	}
	return witReconciler.UpdateControl{Update: update, RescheduleMs: option(control.reschedule)}
}

func bindProblems(found []Problem) []witValidator.Problem {
	bound := make([]witValidator.Problem, 0, len(found))
	for _, problem := range found {
		field := types.None[string]()
		if problem.Field != "" {
			field = types.Some[string](problem.Field)
		}
		bound = append(bound, witValidator.Problem{Field: field, Message: problem.Message})
	}
	return bound
}

func bindDeletion(deletion Deletion) witCleaner.DeleteControl {
	if !deletion.KeepFinalizer {
		return witCleaner.MakeDeleteControlRemoveFinalizer()
	}
	return witCleaner.MakeDeleteControlKeepFinalizer(option(millis(deletion.Reschedule)))
}

func bindErrorControl(control errorControl) witErrorHandler.ErrorControl {
	if !control.handled {
		return witErrorHandler.MakeErrorControlUnhandled()
	}
	next := witErrorHandler.MakeNextStepRetry()
	switch {
	case control.reschedule != nil:
		next = witErrorHandler.MakeNextStepRescheduleMs(*control.reschedule)
	case control.retryAfter != nil:
		next = witErrorHandler.MakeNextStepRetryAfterMs(*control.retryAfter)
	case control.noRetry:
		next = witErrorHandler.MakeNextStepStop()
	}
	return witErrorHandler.MakeErrorControlHandled(witErrorHandler.ErrorHandling{Status: optional(control.status), Next: next})
}

func bindNextRetry(next NextRetry) witRetryPolicy.NextRetry {
	if next.Stop {
		return witRetryPolicy.MakeNextRetryStop()
	}
	if after := millis(next.After); after != nil {
		return witRetryPolicy.MakeNextRetryAfterMs(*after)
	}
	return witRetryPolicy.MakeNextRetryDeclared()
}

func bindCreated(created created) witExternal.Created {
	return witExternal.Created{Actual: created.actual, State: optional(created.state)}
}

func bindMatch(differs string) witTypes.MatchResult {
	if differs == "" {
		return witTypes.MakeMatchResultMatches()
	}
	return witTypes.MakeMatchResultDiffers(differs)
}

func bindCondition(result conditionResult) witCondition.ConditionResult {
	return witCondition.ConditionResult{Met: result.met, Detail: optional(result.detail)}
}

func bindPolled(all []primaryResources) []witPoller.PrimaryResources {
	polled := make([]witPoller.PrimaryResources, len(all))
	for i, one := range all {
		key := witTypes.ObjectKey{Namespace: optional(one.namespace), Name: one.name}
		polled[i] = witPoller.PrimaryResources{Primary: key, Resources: one.resources}
	}
	return polled
}

func requestOf(of witInbound.InboundRequest) request {
	headers := make([]header, len(of.Headers))
	for i, pair := range of.Headers {
		headers[i] = header{pair.Name, pair.Value}
	}
	return request{of.Path, headers, of.Body}
}

func bindAnswer(answer answer) witInbound.InboundAnswer {
	events := make([]witTypes.SourceEvent, len(answer.events))
	for i, event := range answer.events {
		what := witTypes.MakeLearnedWake()
		switch {
		case event.present != "":
			what = witTypes.MakeLearnedPresent(event.present)
		case event.gone != "":
			what = witTypes.MakeLearnedGone(event.gone)
		}
		key := witTypes.ObjectKey{Namespace: optional(event.namespace), Name: event.name}
		events[i] = witTypes.SourceEvent{Primary: key, Learned: what}
	}
	return witInbound.InboundAnswer{Status: answer.status, Body: answer.text, Events: events}
}

func changeOf(change witFilter.Change) changed {
	switch change.Tag() {
	case witFilter.ChangeUpdated:
		update := change.Updated()
		return changed{sort: WasUpdated, object: update.After, before: update.Before}
	case witFilter.ChangeDeleted:
		deletion := change.Deleted()
		return changed{sort: WasDeleted, object: deletion.Last, unknown: deletion.FinalStateUnknown}
	default:
		return changed{sort: WasAdded, object: change.Added()}
	}
}

func bindKeys(keys []Key) []witTypes.ObjectKey {
	bound := make([]witTypes.ObjectKey, len(keys))
	for i, key := range keys {
		bound[i] = witTypes.ObjectKey{Namespace: optional(key.Namespace), Name: key.Name}
	}
	return bound
}

func bindDescription(all []known) []witDescription.KnownNames {
	bound := make([]witDescription.KnownNames, len(all))
	for i, one := range all {
		names := types.None[[]string]()
		if one.names != nil {
			names = types.Some(one.names)
		}
		bound[i] = witDescription.KnownNames{Exported: one.export, Controller: optional(one.controller), Names: names}
	}
	return bound
}

func bindPollResult(result pollResult) witResourcePoller.PollResult {
	return witResourcePoller.PollResult{Resources: result.resources, AgainMs: option(result.again)}
}

// origins in the order of the contract.
var origins = [...]Origin{FromReconciler, FromWorkflow, FromUpdate, FromTrap, FromTimeout, FromOutOfMemory, FromElsewhere}

func failureOf(failed witErrorHandler.FailureInfo) Failure {
	dependents := make([]DependentFailure, len(failed.Dependents))
	for i, dependent := range failed.Dependents {
		dependents[i] = DependentFailure{dependent.Name, dependent.Message, refusedBy(dependent.Refused)}
	}
	return Failure{
		Origin:     origins[failed.Origin],
		Message:    failed.Message,
		Refused:    refusedBy(failed.Refused),
		Dependents: dependents,
		Retry:      retryOf(failed.Retry),
	}
}

// classes in the order of the contract.
var classes = [...]FailureClass{ClassReturned, ClassWorkflow, ClassConflict, ClassRejected, ClassTrap, ClassTimeout, ClassOutOfMemory, ClassOther}

func failedOf(failed witRetryPolicy.FailedRun) FailedRun {
	return FailedRun{FailureClass: classes[failed.FailureClass], Message: failed.Message, Retry: retryOf(failed.Retry)}
}

func refusedBy(refused types.Option[witTypes.CallReason]) error {
	if refused.Tag() == types.OptionNone {
		return nil
	}
	return Reason(refused.Some())
}

func retryOf(retry witTypes.RetryInfo) Retry {
	return Retry{Attempt: int(retry.Attempt), Last: retry.Last}
}

// option returns what a pointer points to, or none.
func option[T any](value *T) types.Option[T] {
	if value == nil {
		return types.None[T]()
	}
	return types.Some(*value)
}

// optional returns a text, or none if it is empty.
func optional(text string) types.Option[string] {
	if text == "" {
		return types.None[string]()
	}
	return types.Some(text)
}

// pointer returns a pointer to a value, or nil.
func pointer[T any](value types.Option[T]) *T {
	if value.Tag() == types.OptionNone {
		return nil
	}
	some := value.Some()
	return &some
}

// duration returns a time of the contract.
func duration(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }
