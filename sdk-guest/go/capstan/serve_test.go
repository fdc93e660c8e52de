// Calls as the daemon makes them, over functions of all sorts.

package capstan

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

type page struct {
	Metadata `json:"metadata"`
	Spec     struct {
		HTML string `json:"html"`
	} `json:"spec"`
}

const hello = `{"metadata": {"name": "hello", "namespace": "web", "generation": 3}, "spec": {"html": "<b>"}}`

// stub is a daemon in a run: it knows its controller and remembers the log; anything else would panic. Where the daemon calls outside of all
// runs, that is beside.
type stub struct {
	Daemon
	controller string
	logs       []string
}

func (s *stub) Run() *RunInfo { return &RunInfo{Controller: s.controller} }

func (s *stub) Log(level slog.Level, message string, fields [][2]string) {
	s.logs = append(s.logs, fmt.Sprint(level, " ", message, " ", fields))
}

// fresh forgets what is registered, and puts it back at the end of the test.
func fresh(t *testing.T) {
	before := registered
	registered = nil
	t.Cleanup(func() { registered = before })
}

func equal(t *testing.T, actual, expected any) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Errorf("\n  is       %#v\n  expected %#v", actual, expected)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAnUpdateBecomesTheDocumentOfTheContract(t *testing.T) {
	ms := func(ms uint32) *uint32 { return &ms }
	type status struct {
		HTML string `json:"html"`
	}
	for _, row := range []struct {
		update   Update
		expected updateControl
	}{
		{Update{}, updateControl{}},
		{Update{Status: status{"<b>"}}, updateControl{status: `{"status":{"html":"<b>"}}`}},
		{Update{Status: (*status)(nil)}, updateControl{}},
		{Update{Object: Object{"spec": 1}}, updateControl{object: `{"spec":1}`}},
		{Update{Object: Object{"spec": 1, "status": 2}, Status: Object{}}, updateControl{objectAndStatus: `{"spec":1,"status":{}}`}},
		{Update{Status: 1, OnlyAt: "7"}, updateControl{status: `{"metadata":{"resourceVersion":"7"},"status":1}`}},
		{Update{Object: Object{"metadata": Object{"name": "a"}}, OnlyAt: "7"}, updateControl{object: `{"metadata":{"name":"a","resourceVersion":"7"}}`}},
		{Update{Object: Object{"metadata": nil}, OnlyAt: "7"}, updateControl{object: `{"metadata":{"resourceVersion":"7"}}`}},
		{Update{Reschedule: 90 * time.Second}, updateControl{reschedule: ms(90_000)}},
		{Update{Reschedule: AtOnce}, updateControl{reschedule: ms(0)}},
		{Update{Reschedule: -time.Second}, updateControl{reschedule: ms(0)}},
		{Update{Reschedule: 100 * 24 * time.Hour}, updateControl{reschedule: ms(4294967295)}},
	} {
		control, err := row.update.control()
		equal(t, err, nil)
		equal(t, control, row.expected)
	}
	_, err := Update{Object: []int{1}, Status: 1}.control()
	equal(t, text(err), "status: not an object: [1]")
	_, err = Update{Status: func() {}}.control()
	equal(t, text(err), "status: json: unsupported type: func()")
}

func TestAFailureIsDealtWithIfAnythingIsAnswered(t *testing.T) {
	zero, second := uint32(0), uint32(1000)
	for _, row := range []struct {
		control  *Handled
		expected errorControl
	}{
		{nil, errorControl{}},
		{&Handled{}, errorControl{handled: true}},
		{&Handled{Status: Object{"ok": false}}, errorControl{handled: true, status: `{"status":{"ok":false}}`}},
		{&Handled{Stop: true}, errorControl{handled: true, noRetry: true}},
		{&Handled{Reschedule: AtOnce}, errorControl{handled: true, reschedule: &zero}},
		{&Handled{RetryAfter: time.Second}, errorControl{handled: true, retryAfter: &second}},
	} {
		control, err := row.control.control()
		equal(t, err, nil)
		equal(t, control, row.expected)
	}
}

func TestAFailureIsDealtWithInOneWay(t *testing.T) {
	for _, row := range []struct {
		handled Handled
		said    string
	}{
		{Handled{Stop: true, RetryAfter: time.Second}, "Stop, RetryAfter and Reschedule exclude each other"},
		{Handled{Stop: true, Reschedule: AtOnce}, "Stop, RetryAfter and Reschedule exclude each other"},
		{Handled{RetryAfter: time.Second, Reschedule: time.Second}, "Stop, RetryAfter and Reschedule exclude each other"},
		{Handled{Stop: true, RetryAfter: -time.Second}, "Stop, RetryAfter and Reschedule exclude each other"},
	} {
		_, err := row.handled.control()
		equal(t, text(err), row.said)
	}
}

func TestNoAnswerSaysTwoThingsAndATimeThatHasPassedIsNow(t *testing.T) {
	fresh(t)
	var deletion Deletion
	var next NextRetry
	var things Things
	Cleanup(func(Run, *page) (Deletion, error) { return deletion, nil })
	DecideRetry(func(Run, *page, FailedRun) (NextRetry, error) { return next, nil })
	PollOne("a", func(Run, *page) (Things, error) { return things, nil })
	run := On(&stub{})
	next = NextRetry{After: time.Second, Stop: true}
	_, err := serveDecideRetry(run, hello, FailedRun{})
	equal(t, text(err), "Stop and After exclude each other")
	// As time.Until says it.
	deletion = Deletion{KeepFinalizer: true, Reschedule: -time.Second}
	_, err = serveCleanup(run, hello)
	equal(t, err, nil)
	next = NextRetry{After: -time.Second}
	_, err = serveDecideRetry(run, hello, FailedRun{})
	equal(t, err, nil)
	things = Things{Again: -time.Second}
	polled, err := servePollOne(run, "a", hello)
	equal(t, err, nil)
	equal(t, *polled.again, uint32(0))
	equal(t, text(run.Expectations().Expect("a", -time.Second)), "timeout: -1s is negative")
}

func TestTheFunctionOfTheRunsControllerIsCalledOrElseThatOfAll(t *testing.T) {
	fresh(t)
	answer := func(status string) func(Run, *page) (Update, error) {
		return func(_ Run, page *page) (Update, error) { return Update{Status: status + page.Name}, nil }
	}
	Controller("theme").Reconcile(answer("theme of "))
	Reconcile(answer("any of "))
	for controller, expected := range map[string]string{"theme": "theme of hello", "webpage": "any of hello"} {
		control, err := serveReconcile(On(&stub{controller: controller}), hello)
		equal(t, err, nil)
		equal(t, control.status, fmt.Sprintf(`{"status":%q}`, expected))
	}
}

func TestAComponentDescribesTheNamesOfWhatIsRegistered(t *testing.T) { // LC-15
	fresh(t)
	Reconcile(func(Run, *page) (Update, error) { return Update{}, nil })
	Desired("configmap", func(Run, *page) (Object, error) { return nil, nil })
	Desired("service", func(Run, *page) (Object, error) { return nil, nil })
	Controller("web").Condition("ready", func(Run, *page, string) (bool, error) { return true, nil })
	equal(t, described(), []known{
		{export: "reconciler"},
		{export: "dependent", names: []string{"configmap", "service"}},
		{export: "condition", controller: "web", names: []string{"ready"}},
	})
}

func TestAnUnknownNameIsToldWhichThereAre(t *testing.T) {
	fresh(t)
	run := On(&stub{controller: "webpage"})
	object := func(Run, *page) (Object, error) { return Object{}, nil }
	met := func(Run, *page, string) (bool, error) { return true, nil }
	Desired("configmap", object)
	Desired("service", object)
	Controller("theme").Desired("secret", object)
	Controller("theme").Condition("is-dark", met)
	Controller("theme").Reconcile(func(Run, *page) (Update, error) { return Update{}, nil })

	_, err := serveDesired(run, "secret", hello)
	equal(t, text(err), "this component has no desired state for `secret`; it has: configmap, service")
	_, err = serveIsMet(run, "is-dark", "service", hello)
	equal(t, text(err), "this component has no condition `is-dark`; it has: none")
	_, err = serveMatch(run, "same", "{}", "{}", hello)
	equal(t, text(err), "this component has no matcher `same`; it has: none")
	_, err = serveReconcile(run, hello)
	equal(t, text(err), "this component has no reconciler for the controller `webpage`; it has: theme")
}

func TestAControllerWithoutValidatorFindsNothingWrong(t *testing.T) {
	fresh(t)
	wrong := []Problem{{Field: "metadata.name", Message: "hello is taken"}}
	Controller("theme").Validate(func(_ Run, page *page) ([]Problem, error) { return wrong, nil })
	found, err := serveValidate(On(&beside{stub{controller: "webpage"}}), hello)
	equal(t, len(found), 0)
	equal(t, err, nil)
	found, err = serveValidate(On(&beside{stub{controller: "theme"}}), hello)
	equal(t, err, nil)
	equal(t, found[0], wrong[0])
	Controller("other").Validate(func(Run, *page) ([]Problem, error) { return nil, errors.New("can't say") })
	_, err = serveValidate(On(&beside{stub{controller: "other"}}), hello)
	equal(t, text(err), "can't say")
}

func TestAControllerWithoutInitializerHasNothingToPrepare(t *testing.T) {
	fresh(t)
	Controller("theme").Initialize(func(_ Run, page *page) error { return errors.New(page.Name + " is not ready") })
	equal(t, serveInitialize(On(&stub{controller: "webpage"}), hello), nil)
	equal(t, text(serveInitialize(On(&stub{controller: "theme"}), hello)), "hello is not ready")
}

func TestAControllerWithoutRetryPolicyLeavesDelaysToTheManifest(t *testing.T) {
	fresh(t)
	Controller("theme").DecideRetry(func(_ Run, page *page, failed FailedRun) (NextRetry, error) {
		if failed.FailureClass == ClassRejected {
			return NextRetry{}, errors.New(page.Name + " has none")
		}
		if failed.Retry.Attempt > 2 {
			return NextRetry{Stop: true}, nil
		}
		return NextRetry{After: 5 * time.Second}, nil
	})
	next, err := serveDecideRetry(On(&stub{controller: "webpage"}), hello, FailedRun{})
	equal(t, next, NextRetry{})
	equal(t, err, nil)
	run := On(&stub{controller: "theme"})
	next, err = serveDecideRetry(run, hello, FailedRun{FailureClass: ClassTrap, Retry: Retry{Attempt: 3}})
	equal(t, next, NextRetry{Stop: true})
	equal(t, err, nil)
	next, err = serveDecideRetry(run, hello, FailedRun{FailureClass: ClassTrap})
	equal(t, next, NextRetry{After: 5 * time.Second})
	equal(t, err, nil)
	_, err = serveDecideRetry(run, hello, FailedRun{FailureClass: ClassRejected})
	equal(t, text(err), "hello has none")
}

func TestAControllerWithoutCleanerOrErrorHandlerLeavesBothToTheDaemon(t *testing.T) {
	fresh(t)
	run := On(&stub{controller: "webpage"})
	Controller("theme").Cleanup(func(Run, *page) (Deletion, error) { return Deletion{KeepFinalizer: true}, nil })
	deletion, err := serveCleanup(run, hello)
	equal(t, deletion, Deletion{})
	equal(t, err, nil)
	control, err := serveHandleError(run, hello, Failure{})
	equal(t, control, errorControl{})
	equal(t, err, nil)
}

func TestEachFunctionGetsItsValuesAndGivesItsAnswer(t *testing.T) {
	fresh(t)
	run := On(&stub{})
	Cleanup(func(_ Run, page *page) (Deletion, error) {
		return Deletion{KeepFinalizer: page.Generation == 3}, nil
	})
	HandleError(func(_ Run, page *page, failure Failure) (*Handled, error) {
		return &Handled{Status: Object{page.Name: failure.Message}}, nil
	})
	Desired("configmap", func(_ Run, page *page) (Object, error) { return Object{"html": page.Spec.HTML}, nil })
	Match("same", func(_ Run, actual, desired *Object, page *page) (string, error) {
		return Equal(page.Name, (*actual)["data"], (*desired)["data"]), nil
	})
	Condition("plain", func(_ Run, page *page, dependent string) (bool, error) { return dependent == page.Name, nil })
	Condition("detailed", func(Run, *page, string) (Met, error) { return Met{true, []int{1}}, nil })

	deletion, _ := serveCleanup(run, hello)
	equal(t, deletion, Deletion{KeepFinalizer: true})
	control, _ := serveHandleError(run, hello, Failure{Message: "no"})
	equal(t, control.status, `{"status":{"hello":"no"}}`)
	object, _ := serveDesired(run, "configmap", hello)
	equal(t, object, `{"html":"<b>"}`)
	differs, _ := serveMatch(run, "same", `{"data": 1}`, `{"data": 2}`, hello)
	equal(t, differs, "hello")
	differs, _ = serveMatch(run, "same", `{"data": 1}`, `{"data": 1}`, hello)
	equal(t, differs, "")
	plain, _ := serveIsMet(run, "plain", "hello", hello)
	equal(t, plain, conditionResult{met: true})
	detailed, _ := serveIsMet(run, "detailed", "hello", hello)
	equal(t, detailed, conditionResult{true, "[1]"})
}

func TestAPrimaryThatDoesNotFitItsTypeSaysSo(t *testing.T) {
	fresh(t)
	Reconcile(func(Run, *page) (Update, error) { return Update{}, nil })
	_, err := serveReconcile(On(&stub{}), `{"spec": {"html": 1}}`)
	if !strings.HasPrefix(text(err), "the primary: not a valid page: json: cannot unmarshal number into Go struct field") {
		t.Error(err)
	}
}

func TestNoDesiredStateIsAnErrorThatSaysWhatToDo(t *testing.T) {
	fresh(t)
	Desired("configmap", func(Run, *page) (*page, error) { return nil, nil })
	_, err := serveDesired(On(&stub{}), "configmap", hello)
	equal(t, text(err), "the desired state is nil: that a dependent should not exist is said by a precondition of the manifest")
}

func TestABulkIsAllItsObjects(t *testing.T) { // BD-1
	fresh(t)
	DesiredSet("themes", func(_ Run, page *page) ([]Object, error) {
		return []Object{{"name": page.Name}, {"name": "b"}}, nil
	})
	DesiredSet("none", func(Run, *page) ([]Object, error) { return nil, nil })
	DesiredSet("nil", func(Run, *page) ([]*page, error) { return []*page{{}, nil}, nil })
	run := On(&stub{})
	objects, _ := serveDesiredSet(run, "themes", hello)
	equal(t, strings.Join(objects, " "), `{"name":"hello"} {"name":"b"}`)
	objects, err := serveDesiredSet(run, "none", hello)
	equal(t, len(objects), 0)
	equal(t, err, nil)
	_, err = serveDesiredSet(run, "nil", hello)
	equal(t, text(err), "object 1 of the desired set is nil: leave out what should not exist")
	_, err = serveDesiredSet(run, "x", hello)
	equal(t, text(err), "this component has no desired set for `x`; it has: themes, none, nil")
}

func TestAnErrorIsTheFailuresText(t *testing.T) {
	fresh(t)
	Reconcile(func(Run, *page) (Update, error) { return Update{}, fmt.Errorf("theme: %w", errors.New("gone")) })
	_, err := serveReconcile(On(&stub{}), hello)
	equal(t, text(err), "theme: gone")
}

func TestAPanicBecomesAnErrorAndItsStackALineOfTheLog(t *testing.T) {
	fresh(t)
	daemon := &stub{}
	Reconcile(func(_ Run, page *page) (Update, error) { return Update{Status: page.Finalizers[2]}, nil })
	_, err := serveReconcile(On(daemon), hello)
	// Functions of this package are left out, and this test is one.
	equal(t, text(err), "panic: runtime error: index out of range [2] with length 0")
	equal(t, daemon.logs, []string{"ERROR panic [[panic runtime error: index out of range [2] with length 0] [stack ]]"})
}

func TestMistakesOfRegisteringAreFoundAtTheStart(t *testing.T) {
	fresh(t)
	object := func(Run, *page) (Object, error) { return nil, nil }
	Desired("configmap", object)
	for expected, act := range map[string]func(){
		`capstan.Desired("configmap") is called twice`:   func() { Desired("configmap", object) },
		`capstan.Desired(""): the name is empty`:         func() { Desired("", object) },
		`capstan.Desired("\xff"): the name is not UTF-8`: func() { Desired("\xff", object) },
		`capstan.Controller("theme").Reconcile: the function is nil`: func() {
			Controller("theme").Reconcile((func(Run, *page) (Update, error))(nil))
		},
	} {
		func() {
			defer func() { equal(t, recover(), any(expected)) }()
			act()
		}()
	}
	equal(t, Registered(), []Registration{{Interface: "dependent", Name: "configmap"}})
}

func TestAnEmptyRunSaysWhereToGetOne(t *testing.T) {
	defer func() {
		equal(t, recover(), any("this capstan.Run is empty: take the one that your function is given, or in a test that of a capstantest.Daemon"))
	}()
	Run{}.NextImminent()
}

func TestARefusalIsComparedByItsReason(t *testing.T) {
	err := fmt.Errorf("write: %w", &CallError{Reason: ErrConflict, Code: 409, Message: "somebody was faster"})
	equal(t, errors.Is(err, ErrConflict), true)
	equal(t, errors.Is(err, ErrDenied), false)
	var refused *CallError
	equal(t, errors.As(err, &refused) && refused.Code == 409, true)
	equal(t, text(err), "write: somebody was faster")
	equal(t, ErrOther.Error(), "other")
}

func TestARefNeedsANameAndAKind(t *testing.T) {
	ref, err := RefOf(Object{"apiVersion": "v1", "kind": "Pod", "metadata": Metadata{Name: "a", Namespace: "web"}})
	equal(t, ref, ObjectRef{"v1", "Pod", "web", "a"})
	equal(t, err, nil)
	_, err = RefOf(Object{"kind": "Pod"})
	equal(t, text(err), `an object needs apiVersion, kind and metadata.name: {"kind":"Pod"}`)
}

// beside is a daemon that calls outside of all runs.
type beside struct{ stub }

func (*beside) Run() *RunInfo { return nil }

func (b *beside) Settings() string { return `{"controller": {"name": "` + b.controller + `"}}` }

func TestWhatIsPolledIsAListOfThingsByPrimary(t *testing.T) {
	fresh(t)
	type domain struct {
		ID string `json:"id"`
	}
	Controller("web").Poll("themes", func(Run) ([]PrimaryThings, error) {
		return []PrimaryThings{{"web", "hello", []any{domain{"a"}, 7}}, {Name: "all"}}, nil
	})
	Poll("broken", func(Run) ([]PrimaryThings, error) { return []PrimaryThings{{Name: "a", Things: domain{"a"}}}, nil })
	PollOne("domains", func(_ Run, page *page) (Things, error) {
		return Things{Things: []domain{{page.Name}}, Again: 2 * time.Second}, nil
	})
	PollOne("none", func(Run, *page) (Things, error) { return Things{}, nil })
	run := On(&beside{stub{controller: "web"}})

	all, err := servePoll(run, "themes")
	equal(t, all, []primaryResources{{"web", "hello", []string{`{"id":"a"}`, "7"}}, {"", "all", nil}})
	equal(t, err, nil)
	_, err = servePoll(run, "broken")
	equal(t, text(err), "the things of a: no list, but a capstan.domain")
	_, err = servePoll(run, "x")
	equal(t, text(err), "this component has no poller of `x`; it has: themes, broken")

	one, err := servePollOne(run, "domains", hello)
	equal(t, one.resources, []string{`{"id":"hello"}`})
	equal(t, *one.again, uint32(2000))
	equal(t, err, nil)
	one, err = servePollOne(run, "none", hello)
	equal(t, one, pollResult{})
	equal(t, err, nil)
	_, err = servePollOne(run, "x", hello)
	equal(t, text(err), "this component has no resource poller of `x`; it has: domains, none")
}

func TestEachCallFindsTheFunctionOfItsControllerInARunAndBeside(t *testing.T) {
	fresh(t)
	web := Controller("web")
	web.Reconcile(func(Run, *page) (Update, error) { return Update{}, errors.New("called") })
	web.Cleanup(func(Run, *page) (Deletion, error) { return Deletion{}, errors.New("called") })
	web.HandleError(func(Run, *page, Failure) (*Handled, error) { return nil, errors.New("called") })
	web.DecideRetry(func(Run, *page, FailedRun) (NextRetry, error) { return NextRetry{}, errors.New("called") })
	web.Validate(func(Run, *page) ([]Problem, error) { return nil, errors.New("called") })
	web.Initialize(func(Run, *page) error { return errors.New("called") })
	web.Desired("a", func(Run, *page) (Object, error) { return nil, errors.New("called") })
	web.DesiredSet("a", func(Run, *page) ([]Object, error) { return nil, errors.New("called") })
	web.CreateExternal("a", func(Run, *Object, *page) (Created, error) { return Created{}, errors.New("called") })
	web.UpdateExternal("a", func(Run, *Object, *Object, *page) (*Object, error) { return nil, errors.New("called") })
	web.RemoveExternal("a", func(Run, *Object, *page) error { return errors.New("called") })
	web.Match("a", func(Run, *Object, *Object, *page) (string, error) { return "", errors.New("called") })
	web.Condition("a", func(Run, *page, string) (bool, error) { return false, errors.New("called") })
	web.Poll("a", func(Run) ([]PrimaryThings, error) { return nil, errors.New("called") })
	web.PollOne("a", func(Run, *page) (Things, error) { return Things{}, errors.New("called") })
	web.Receive("a", func(Run, Request) (Received, error) { return Received{}, errors.New("called") })
	web.Accepts("a", func(Run, Change[page]) (bool, error) { return false, errors.New("called") })
	web.ToPrimaries("a", func(Run, *page) ([]Key, error) { return nil, errors.New("called") })
	web.ToSecondaries("a", func(Run, *page) ([]Key, error) { return nil, errors.New("called") })
	calls := map[string]func(run Run) error{
		"Reconcile":      func(run Run) error { _, err := serveReconcile(run, hello); return err },
		"Cleanup":        func(run Run) error { _, err := serveCleanup(run, hello); return err },
		"HandleError":    func(run Run) error { _, err := serveHandleError(run, hello, Failure{}); return err },
		"DecideRetry":    func(run Run) error { _, err := serveDecideRetry(run, hello, FailedRun{}); return err },
		"Validate":       func(run Run) error { _, err := serveValidate(run, hello); return err },
		"Initialize":     func(run Run) error { return serveInitialize(run, hello) },
		"Desired":        func(run Run) error { _, err := serveDesired(run, "a", hello); return err },
		"DesiredSet":     func(run Run) error { _, err := serveDesiredSet(run, "a", hello); return err },
		"CreateExternal": func(run Run) error { _, err := serveCreate(run, "a", "{}", hello); return err },
		"UpdateExternal": func(run Run) error { _, err := serveUpdate(run, "a", "{}", "{}", hello); return err },
		"RemoveExternal": func(run Run) error { return serveRemove(run, "a", "{}", hello) },
		"Match":          func(run Run) error { _, err := serveMatch(run, "a", "{}", "{}", hello); return err },
		"Condition":      func(run Run) error { _, err := serveIsMet(run, "a", "", hello); return err },
		"Poll":           func(run Run) error { _, err := servePoll(run, "a"); return err },
		"PollOne":        func(run Run) error { _, err := servePollOne(run, "a", hello); return err },
		"Receive":        func(run Run) error { _, err := serveReceive(run, "a", request{}); return err },
		"Accepts":        func(run Run) error { _, err := serveAccepts(run, "a", changed{object: hello}); return err },
		"ToPrimaries":    func(run Run) error { _, err := serveToPrimaries(run, "a", hello); return err },
		"ToSecondaries":  func(run Run) error { _, err := serveToSecondaries(run, "a", hello); return err },
	}
	equal(t, len(calls), len(registered))
	for name, call := range calls {
		for where, daemon := range map[string]Daemon{"in a run": &stub{controller: "web"}, "beside": &beside{stub{controller: "web"}}} {
			if said := text(call(On(daemon))); said != "called" {
				t.Errorf("%s %s: %q", name, where, said)
			}
		}
	}
}
