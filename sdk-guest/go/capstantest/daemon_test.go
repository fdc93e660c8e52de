//go:build !wasip1

// What a function under test sees of its test, and the test of it.

package capstantest_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	"github.com/capstan-dev/capstan/sdk-guest/go/capstantest"
)

type object = capstan.Object

func equal(t *testing.T, actual, expected any) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Errorf("\n  is       %#v\n  expected %#v", actual, expected)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func named(kind, namespace, name string, labels object) object {
	metadata := object{"name": name, "labels": labels}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return object{"apiVersion": "v1", "kind": kind, "metadata": metadata}
}

func names(objects []object) []string {
	var names []string
	for _, one := range objects {
		names = append(names, one["metadata"].(object)["name"].(string))
	}
	return names
}

func TestAFunctionReadsWhatTheTestHasPutIntoTheCaches(t *testing.T) {
	daemon := &capstantest.Daemon{
		Primaries:   []any{named("WebPage", "web", "hello", nil)},
		Secondaries: capstantest.Objects{"pods": {named("Pod", "web", "b", object{"app": "x"}), named("Pod", "web", "a", object{"app": "y"})}},
		Unrelated:   capstantest.Objects{"pods": {named("Pod", "other", "c", nil)}},
		Indexes:     map[string]map[string][]string{"by-node": {"n1": {"a", "c"}}},
	}
	run := daemon.Run()
	list := func(query capstan.Query) []string { return names(must[[]object](t)(run.List[object](query))) }
	pods := capstan.Source("pods")
	equal(t, list(capstan.Query{From: pods}), []string{"a", "b"})
	equal(t, list(capstan.Query{From: pods, Limit: 1}), []string{"a", "b"})
	equal(t, list(capstan.Query{From: pods, Labels: "app=x"}), []string{"b"})
	equal(t, list(capstan.Query{From: pods, Where: capstan.Everywhere()}), []string{"c", "a", "b"})
	equal(t, list(capstan.Query{From: pods, Where: capstan.InNamespace("other")}), []string{"c"})
	equal(t, list(capstan.Query{From: pods, Where: capstan.Indexed("by-node", "n1")}), []string{"c", "a"})
	equal(t, list(capstan.Query{From: capstan.Kind("v1", "Pod"), Where: capstan.Everywhere()}), []string{"c", "a", "b"})
	equal(t, list(capstan.Query{From: capstan.Primaries(), Where: capstan.Everywhere()}), []string{"hello"})

	_, err := run.Secondary[object]("pods")
	equal(t, errors.Is(err, capstan.ErrAmbiguous), true)
	_, err = run.List[object](capstan.Query{From: capstan.Primaries()})
	equal(t, errors.Is(err, capstan.ErrMisplaced), true)
	equal(t, must[*object](t)(run.Secondary[object]("none")) == nil, true)
	c := must[*object](t)(run.Named[object](pods, "other", "c"))
	equal(t, (*c)["kind"], "Pod")
	equal(t, must[*object](t)(run.Named[object](pods, "", "c")) == nil, true)
}

func TestASourceThatTheControllerDoesNotHaveIsRefusedIfTheTestSaysWhichItHas(t *testing.T) {
	daemon := &capstantest.Daemon{Sources: []string{"settings"}, Secondaries: capstantest.Objects{"pods": {named("Pod", "web", "a", nil)}}}
	run := daemon.Run()
	equal(t, must[*object](t)(run.Secondary[object]("settings")) == nil, true)
	equal(t, must[*object](t)(run.Secondary[object]("pods")) != nil, true)
	missing := error(&capstan.CallError{Reason: capstan.ErrMissing, Message: `no source is called "setings"; there are: pods, settings`})
	_, err := run.Secondary[object]("setings")
	equal(t, err, missing)
	_, err = run.List[object](capstan.Query{From: capstan.Source("setings")})
	equal(t, err, missing)
	_, err = run.Named[object](capstan.Source("setings"), "", "a")
	equal(t, err, missing)
}

func TestAPageHasItsFieldsAndSaysWhereTheNextBegins(t *testing.T) {
	pod := named("Pod", "web", "a", nil)
	pod["spec"] = object{"nodeName": "n1", "hostname": "h"}
	daemon := &capstantest.Daemon{Secondaries: capstantest.Objects{"pods": {pod, named("Pod", "web", "b", nil)}}}
	query := capstan.Query{From: capstan.Source("pods"), Fields: []string{"/spec/nodeName"}, Limit: 1}
	page := must[capstan.Page[object]](t)(daemon.Run().Page[object](query))
	equal(t, page.Items, []object{{"apiVersion": "v1", "kind": "Pod", "metadata": object{"namespace": "web", "name": "a"}, "spec": object{"nodeName": "n1"}}})
	query.After = page.Next
	page = must[capstan.Page[object]](t)(daemon.Run().Page[object](query))
	equal(t, names(page.Items), []string{"b"})
	equal(t, page.Next, "")
}

func TestLabelSelectorsAreThoseOfKubectl(t *testing.T) {
	pods := []any{named("Pod", "", "a", object{"app": "x", "tier": "web"}), named("Pod", "", "b", object{"app": "y"}), named("Pod", "", "c", nil)}
	daemon := &capstantest.Daemon{Secondaries: capstantest.Objects{"pods": pods}}
	for selector, expected := range map[string][]string{
		"":                        {"a", "b", "c"},
		"app":                     {"a", "b"},
		"!app":                    {"c"},
		"app=x":                   {"a"},
		"app == x, tier=web":      {"a"},
		"app!=x":                  {"b", "c"},
		"app in (x, y),!tier":     {"b"},
		"app notin (x),tier!=web": {"b", "c"},
	} {
		found := must[[]object](t)(daemon.Run().List[object](capstan.Query{From: capstan.Source("pods"), Labels: selector}))
		if !slices.Equal(names(found), expected) {
			t.Errorf("%q selects %v, expected %v", selector, names(found), expected)
		}
	}
	_, err := daemon.Run().List[object](capstan.Query{From: capstan.Source("pods"), Labels: "a b"})
	equal(t, err, error(&capstan.CallError{Reason: capstan.ErrInvalid, Message: "`a b` is no label selector"}))
}

func TestTheTimeOfAConditionChangesWithItsStatusAlone(t *testing.T) {
	conditions := []capstan.StatusCondition{{Type: "Other", Status: capstan.ConditionUnknown}}
	at := func(day int, status capstan.ConditionStatus, message string) bool {
		daemon := &capstantest.Daemon{Clock: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)}
		return daemon.Run().SetCondition(&conditions, capstan.StatusCondition{
			Type: "Synced", Status: status, ObservedGeneration: 2, Reason: "Copied", Message: message,
		})
	}
	equal(t, at(1, capstan.ConditionFalse, "half"), true)
	equal(t, at(2, capstan.ConditionFalse, "more"), true)
	equal(t, at(3, capstan.ConditionFalse, "more"), false)
	equal(t, conditions[1].LastTransitionTime, "2026-01-01T00:00:00Z")
	equal(t, at(3, capstan.ConditionTrue, "all"), true)
	equal(t, conditions, []capstan.StatusCondition{
		{Type: "Other", Status: capstan.ConditionUnknown},
		{
			Type: "Synced", Status: capstan.ConditionTrue, ObservedGeneration: 2,
			LastTransitionTime: "2026-01-03T00:00:00Z", Reason: "Copied", Message: "all",
		},
	})
}

func TestWritesAreRecordedAndReadAgain(t *testing.T) {
	daemon := &capstantest.Daemon{}
	run := daemon.Run()
	config := named("ConfigMap", "web", "theme", object{})
	ref := capstan.ObjectRef{APIVersion: "v1", Kind: "ConfigMap", Namespace: "web", Name: "theme"}

	equal(t, must[object](t)(run.Create(config)), config)
	_, err := run.Create(config)
	equal(t, err, error(&capstan.CallError{Reason: capstan.ErrConflict, Code: 409, Message: "ConfigMap theme exists"}))
	patched := must[object](t)(run.MergePatch[object](ref, object{"data": object{"a": "1", "b": nil}}, capstan.WriteOptions{Mode: capstan.Plain}))
	equal(t, patched["data"], object{"a": "1"})
	patched = must[object](t)(run.JSONPatch[object](ref, []object{{"op": "test", "path": "/data/a", "value": "1"}, {"op": "move", "from": "/data/a", "path": "/data/c~1d"}}))
	equal(t, patched["data"], object{"c/d": "1"})
	equal(t, (*must[*object](t)(run.Named[object](capstan.Kind("v1", "ConfigMap"), "web", "theme")))["data"], object{"c/d": "1"})
	if err := run.Remove(ref); err != nil {
		t.Fatal(err)
	}
	_, err = run.MergePatch[object](ref, object{})
	equal(t, errors.Is(err, capstan.ErrMissing), true)

	var verbs []capstan.Verb
	for _, write := range daemon.Writes {
		verbs = append(verbs, write.Verb)
		equal(t, write.Target, ref)
	}
	equal(t, verbs, []capstan.Verb{capstan.VerbCreate, capstan.VerbCreate, capstan.VerbMergePatch, capstan.VerbJSONPatch, capstan.VerbRemove, capstan.VerbMergePatch})
	equal(t, daemon.Writes[2].Mode, capstan.Plain)
}

func TestAJSONPatchChangesLists(t *testing.T) {
	service := named("Service", "web", "a", nil)
	service["ports"] = []int{1, 2, 3}
	daemon := &capstantest.Daemon{Secondaries: capstantest.Objects{"services": {service}}}
	ref := capstan.ObjectRef{APIVersion: "v1", Kind: "Service", Namespace: "web", Name: "a"}
	patch := []object{
		{"op": "remove", "path": "/ports/0"},
		{"op": "add", "path": "/ports/-", "value": 4},
		{"op": "add", "path": "/ports/0", "value": 0},
		{"op": "replace", "path": "/ports/1", "value": 9},
		{"op": "copy", "from": "/ports/3", "path": "/last"},
	}
	patched := must[object](t)(daemon.Run().JSONPatch[object](ref, patch))
	equal(t, patched["ports"], []any{json.Number("0"), json.Number("9"), json.Number("3"), json.Number("4")})
	equal(t, patched["last"], any(json.Number("4")))
	for _, wrong := range []object{{"op": "remove", "path": "/ports/9"}, {"op": "test", "path": "/kind", "value": "Pod"}, {"op": "paint", "path": "/kind"}} {
		_, err := daemon.Run().JSONPatch[object](ref, []object{wrong})
		equal(t, errors.Is(err, capstan.ErrInvalid), true)
	}
}

func TestATestCanRefuseWrites(t *testing.T) {
	refusal := capstan.CallError{Reason: capstan.ErrDenied, Message: "the manifest does not permit it"}
	daemon := &capstantest.Daemon{Refusals: map[capstan.Verb]capstan.CallError{capstan.VerbApply: refusal}}
	_, err := daemon.Run().Apply(named("Secret", "web", "a", nil))
	equal(t, err, error(&refusal))
	equal(t, len(daemon.Writes), 0)
}

func TestFinalizersOfThePrimaryComeAndGo(t *testing.T) {
	daemon := &capstantest.Daemon{Primaries: []any{named("WebPage", "web", "hello", nil)}}
	type page struct{ Metadata capstan.Metadata }
	added := must[page](t)(daemon.Run().AddFinalizer[page](""))
	equal(t, added.Metadata.Finalizers, []string{"test/finalizer"})
	removed := must[page](t)(daemon.Run().RemoveFinalizer[page](""))
	equal(t, len(removed.Metadata.Finalizers), 0)
	equal(t, daemon.Writes[0].Body, any("test/finalizer"))
}

func TestMemosAreKeptByLifetimeAndKey(t *testing.T) {
	daemon := &capstantest.Daemon{Memos: map[capstantest.MemoKey]any{{Lifetime: capstan.ForPrimary, Key: "seen"}: 3}}
	run := daemon.Run()
	equal(t, *must[*int](t)(run.Memo[int](capstan.ForPrimary, "seen")), 3)
	equal(t, must[*int](t)(run.Memo[int](capstan.ForRun, "seen")) == nil, true)
	if err := errors.Join(run.SetMemo(capstan.ForRun, "a", []string{"x"}), run.RemoveMemo(capstan.ForPrimary, "seen")); err != nil {
		t.Fatal(err)
	}
	equal(t, daemon.Memos, map[capstantest.MemoKey]any{{Lifetime: capstan.ForRun, Key: "a"}: []any{"x"}})
}

func TestWorkflowsEndAsTheTestSays(t *testing.T) {
	preview := capstan.WorkflowResult{Nodes: []capstan.NodeResult{{Name: "pod", Done: []capstan.ObjectResult{{Key: "a", Operation: capstan.OperationCreated}}}}, Complete: true}
	daemon := &capstantest.Daemon{
		Workflows:  map[string]capstan.WorkflowResult{"preview": preview},
		Dependents: map[string]capstan.NodeResult{"pod": preview.Nodes[0]},
	}
	run := daemon.Run()
	equal(t, run.Workflow("preview").LastResult() == nil, true)
	equal(t, must[capstan.WorkflowResult](t)(run.Workflow("preview").Reconcile()), preview)
	equal(t, *run.Workflow("preview").LastResult(), preview)
	equal(t, must[capstan.NodeResult](t)(run.Dependent("pod").Remove()), preview.Nodes[0])
	_, err := run.Workflow("").Cleanup()
	equal(t, err, error(&capstan.CallError{Reason: capstan.ErrMissing, Message: "the test has no workflow of the controller"}))
}

func TestAComparisonToleratesAdditionsUnlessItIsForEquality(t *testing.T) {
	run := (&capstantest.Daemon{}).Run()
	actual := object{"a": 1, "status": object{"x": 1, "y": 2}, "list": []int{1}}
	for _, row := range []struct {
		by      capstan.Comparison
		desired object
		ignore  []string
		differs string
	}{
		{capstan.ComparisonGeneric, object{"a": 1}, nil, ""},
		{capstan.ComparisonGeneric, object{"a": 2}, nil, "the documents differ"},
		{capstan.ComparisonGeneric, object{"a": 2}, []string{"/a"}, ""},
		{capstan.ComparisonGeneric, object{"list": []int{1, 2}}, nil, "the documents differ"},
		{capstan.ComparisonStatusOnly, object{"a": 2, "status": object{"x": 1}}, nil, ""},
		{capstan.ComparisonEquality, object{"a": 1}, nil, "the documents differ"},
	} {
		if differs := must[string](t)(run.Compare(row.by, actual, row.desired, row.ignore...)); differs != row.differs {
			t.Errorf("%v: %q", row, differs)
		}
	}
}

func TestLogLinesAndEventsAreRecorded(t *testing.T) {
	daemon := &capstantest.Daemon{}
	daemon.Run().Log().With("page", "hello").WithGroup("took").Warn("slow", "ms", 12, slog.Group("of", "total", 2))
	daemon.Run().Recorder().Warning("NoTheme", "the theme is not there yet")
	equal(t, daemon.Logs, []capstantest.Line{{Level: slog.LevelWarn, Message: "slow", Fields: map[string]string{"page": "hello", "took.ms": "12", "took.of.total": "2"}}})
	equal(t, daemon.Events, []capstan.Event{{Warning: true, Reason: "NoTheme", Message: "the theme is not there yet"}})
}

func TestTheRunIsAsTheTestSaysItIs(t *testing.T) {
	daemon := &capstantest.Daemon{Controller: "web", Retry: &capstan.Retry{Attempt: 2}, Imminent: true, Left: time.Minute, Configuration: object{"title": "x"}}
	run := daemon.Run()
	equal(t, run.Info(), capstan.RunInfo{Controller: "web", Retry: &capstan.Retry{Attempt: 2}})
	equal(t, run.NextImminent(), true)
	equal(t, must[struct{ Title string }](t)(run.Config[struct{ Title string }]()).Title, "x")
	equal(t, must[object](t)(run.Settings[object]())["controller"], any(object{"name": "web"}))
	deadline, ok := run.Deadline()
	equal(t, ok && time.Until(deadline) > 50*time.Second, true)
	equal(t, run.Now(), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	equal(t, run.UUID() != run.UUID() && len(run.UUID()) == 36, true)
	equal(t, (&capstantest.Daemon{}).Run().RandomBytes(3), (&capstantest.Daemon{}).Run().RandomBytes(3))
}

func TestACallBesideAllRunsHasNoRunButTheSettingsOfItsController(t *testing.T) {
	run := (&capstantest.Daemon{Controller: "web", Retry: &capstan.Retry{Attempt: 2}, Beside: true}).Run()
	equal(t, run.Info(), capstan.RunInfo{})
	equal(t, run.Retry() == nil, true)
	equal(t, must[object](t)(run.Settings[object]())["controller"], any(object{"name": "web"}))
}

func TestRandomBytesAreAsManyAsWereAskedFor(t *testing.T) {
	run := (&capstantest.Daemon{}).Run()
	for _, count := range []int{-1, 0, 3, 4096, 10_000} {
		equal(t, len(run.RandomBytes(count)), max(0, count))
	}
}

func TestCountsAreNotNegative(t *testing.T) {
	run := (&capstantest.Daemon{}).Run()
	_, err := run.Page[object](capstan.Query{From: capstan.Source("pods"), Limit: -1})
	equal(t, err, error(&capstan.CallError{Reason: capstan.ErrInvalid, Message: "Limit: -1 is negative"}))
	seconds := -1
	err = run.Remove(capstan.ObjectRef{APIVersion: "v1", Kind: "Pod", Name: "a"}, capstan.RemoveOptions{GraceSeconds: &seconds})
	equal(t, err, error(&capstan.CallError{Reason: capstan.ErrInvalid, Message: "GraceSeconds: -1 is negative"}))
}

func TestGoroutinesMayShareARun(t *testing.T) {
	daemon := &capstantest.Daemon{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { daemon.Run().Log().Info("here") })
	}
	group.Wait()
	equal(t, len(daemon.Logs), 8)
}

func TestWhatIsExpectedIsCheckedAndSet(t *testing.T) {
	// XP-1, XP-2, XP-3
	yes, no := func() (bool, error) { return true, nil }, func() (bool, error) { return false, nil }
	daemon := &capstantest.Daemon{}
	run := daemon.Run()
	equal(t, must[capstan.Outcome](t)(run.Expectations().Check("ready", yes)), capstan.NotExpected)
	equal(t, must[bool](t)(run.Expectations().CheckAndSet("ready", time.Second, yes)), false)
	equal(t, run.Expectations().Pending() == nil, true)
	equal(t, must[bool](t)(run.Expectations().CheckAndSet("ready", time.Second, no)), true)
	equal(t, must[capstan.Outcome](t)(run.Expectations().Check("gone", yes)), capstan.NotExpected)
	equal(t, must[capstan.Outcome](t)(run.Expectations().Check("ready", no)), capstan.Pending)
	unknown := errors.New("unknown")
	_, err := run.Expectations().Check("ready", func() (bool, error) { return false, unknown })
	equal(t, err, unknown)
	equal(t, must[capstan.Outcome](t)(run.Expectations().Check("ready", yes)), capstan.Fulfilled)
	equal(t, run.Expectations().Clear("ready"), false)
	equal(t, errors.Is(run.Expectations().Expect("", time.Second), capstan.ErrInvalid), true)
	daemon.Expectation = &capstan.Expectation{Name: "ready", TimedOut: true}
	equal(t, must[capstan.Outcome](t)(run.Expectations().Check("ready", no)), capstan.TimedOut)
	equal(t, run.Expectations().Clear("ready"), true)
	equal(t, daemon.Expectation == nil, true)
}

func TestWhatWasWrittenOutsideOfTheClusterIsRecorded(t *testing.T) {
	// XC-4
	daemon := &capstantest.Daemon{}
	run, made, changed := daemon.Run(), object{"id": "a"}, object{"id": "a", "ttl": json.Number("1")}
	told := errors.Join(run.Remember("domains", made, (*object)(nil)), run.Remember("domains", changed, made), run.Forget("domains", "a"))
	equal(t, told, nil)
	equal(t, errors.Is(run.Remember("domains", func() {}), nil), false)
	expected := []capstantest.Remembered{
		{Source: "domains", Actual: made},
		{Source: "domains", Actual: changed, Replaced: made},
		{Source: "domains", Forgotten: "a"},
	}
	equal(t, daemon.Remembered, expected)
}

func TestASourceIsRegisteredOnceAndDeregistered(t *testing.T) {
	// ES-4
	declared := func(kind string) object { return object{"informer": object{"apiVersion": "v1", "kind": kind}} }
	daemon := &capstantest.Daemon{
		Registered:     map[string]any{"old": declared("Pod")},
		SourceRefusals: map[string]capstan.CallError{"nodes": {Reason: capstan.ErrDenied, Message: "not permitted"}},
	}
	run := daemon.Run()
	equal(t, must[bool](t)(run.Register("keys", declared("Secret"))), true)
	equal(t, must[bool](t)(run.Register("keys", declared("Pod"))), false)
	equal(t, errors.Join(run.Deregister("old"), run.Deregister("gone")), nil)
	_, err := run.Register("nodes", declared("Node"))
	equal(t, errors.Is(err, capstan.ErrDenied), true)
	equal(t, len(daemon.Registered), 1)
	equal(t, daemon.Registered["keys"].(object)["informer"].(object)["kind"], any("Secret"))
}

func TestWhatIsAskedIsUTF8(t *testing.T) {
	const broken, whole = "a\xffb", "a\uFFFDb"
	daemon := &capstantest.Daemon{Workflows: map[string]capstan.WorkflowResult{whole: {Complete: true}}, Primaries: []any{named("WebPage", "web", "hello", nil)}}
	run := daemon.Run()
	run.Log().Info(broken, broken, broken)
	run.Recorder().Publish(capstan.Event{Reason: broken, Message: broken, Key: broken, Labels: map[string]string{broken: broken}})
	_, registered := run.Register(broken, object{"a": broken})
	_, created := run.Create(named("Pod", "web", broken, nil))
	_, finalized := run.AddFinalizer[object](broken)
	_, ran := run.Workflow(broken).Reconcile()
	errs := errors.Join(registered, created, finalized, ran, run.SetMemo(capstan.ForRun, broken, broken), run.Remember(broken, broken), run.Forget(broken, broken),
		run.Expectations().Expect(broken, time.Second))
	equal(t, errs, nil)
	_, err := run.List[object](capstan.Query{From: capstan.Source("pods"), Labels: "x " + broken})
	equal(t, err.Error(), "`x "+whole+"` is no label selector")
	equal(t, daemon.Logs, []capstantest.Line{{Message: whole, Fields: map[string]string{whole: whole}}})
	equal(t, daemon.Events, []capstan.Event{{Reason: whole, Message: whole, Key: whole, Labels: map[string]string{whole: whole}}})
	equal(t, daemon.Registered, map[string]any{whole: object{"a": whole}})
	equal(t, daemon.Writes[0].Target.Name, whole)
	equal(t, daemon.Writes[1].Body, any(whole))
	equal(t, daemon.Memos, map[capstantest.MemoKey]any{{Lifetime: capstan.ForRun, Key: whole}: whole})
	equal(t, daemon.Remembered, []capstantest.Remembered{{Source: whole, Actual: whole}, {Source: whole, Forgotten: whole}})
	equal(t, *run.Expectations().Pending(), capstan.Expectation{Name: whole})
}

func TestAWriteChangesNoNumberThatItsAuthorHasNotTouched(t *testing.T) {
	// As in a component: what is read as an Object is written with the same digits.
	const big = 9007199254740993
	pod := named("Pod", "web", "a", nil)
	pod["spec"] = object{"big": big, "size": 1}
	daemon := &capstantest.Daemon{Secondaries: capstantest.Objects{"pods": {pod}}}
	run := daemon.Run()
	read := *must[*object](t)(run.Secondary[object]("pods"))
	read["spec"].(object)["size"] = 2
	must[object](t)(run.Edit(read))
	equal(t, daemon.Writes[0].Body.(object)["spec"], any(object{"big": json.Number("9007199254740993"), "size": json.Number("2")}))
	typed := must[*struct{ Spec struct{ Big, Size int64 } }](t)(run.Secondary[struct{ Spec struct{ Big, Size int64 } }]("pods"))
	equal(t, typed.Spec, struct{ Big, Size int64 }{big, 2})
	equal(t, (*capstantest.Read[object](`{"big":9007199254740993}`))["big"], any(json.Number("9007199254740993")))
	equal(t, must[string](t)(run.Compare(capstan.ComparisonEquality, object{"a": big}, object{"a": big - 1})), "the documents differ")
	equal(t, must[string](t)(run.Compare(capstan.ComparisonGeneric, object{"a": []any{1, 2}}, object{"a": []any{1.0, 2}})), "")
}
