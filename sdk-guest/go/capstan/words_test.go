// What is answered to an author, as it is when it is put into a status.

package capstan

import (
	"fmt"
	"testing"
)

func TestWhatIsAnsweredIsWrittenInTheWordsOfTheContract(t *testing.T) {
	node := NodeResult{
		Name:       "map",
		Done:       []ObjectResult{{"hello", OperationCreated}},
		Conditions: []ConditionOutcome{{ReadyPostcondition, true, []byte(`{"why":"so"}`)}, {Role: ReconcilePrecondition}, {Role: DeletePostcondition}},
	}
	retry := Retry{Attempt: 1, Last: true}
	for _, row := range []struct {
		answer any
		text   string
	}{
		{WorkflowResult{[]NodeResult{node, {Name: "pod", Failed: "no"}}, true}, `{"nodes":[{"name":"map",` +
			`"done":[{"key":"hello","operation":"created"}],"conditions":[{"role":"ready-postcondition","met":true,"detail":{"why":"so"}},` +
			`{"role":"reconcile-precondition","met":false},{"role":"delete-postcondition","met":false}]},` +
			`{"name":"pod","failed":"no"}],"complete":true}`},
		{Failure{FromWorkflow, "no", nil, []DependentFailure{{"map", "no", ErrConflict}}, retry},
			`{"origin":"workflow","message":"no","dependents":[{"name":"map","message":"no","refused":"conflict"}],"retry":{"attempt":1,"last":true}}`},
		{FailedRun{ClassOutOfMemory, "no", retry}, `{"failureClass":"out-of-memory","message":"no","retry":{"attempt":1,"last":true}}`},
		{RunInfo{Controller: "web", Retry: &retry},
			`{"controller":"web","retry":{"attempt":1,"last":true},"primaryDeleted":false,"finalStateUnknown":false}`},
	} {
		text, err := encode(row.answer)
		equal(t, err, nil)
		equal(t, text, row.text)
	}
}

func TestAFailureAsATextIsItsMessage(t *testing.T) {
	equal(t, fmt.Sprint(Failure{Message: "no"}, DependentFailure{Name: "map", Message: "no"}, FailedRun{Message: "no"}), "no map: no no")
}
