// Command probe-go asks the daemon for all that a component may ask for, and puts the answers into the status: for tests of
// the SDK alone.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

const word = "Grüße 👋"

type probe struct {
	APIVersion, Kind string
	capstan.Metadata `json:"metadata"`
	Spec             struct {
		Text, Note  string
		Again, Stop bool
		StopRetry   bool
		Wrong       string
		Wanted      *bool
		Fail        map[string]string
	} `json:"spec"`
}

type configMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   capstan.Object    `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
}

func init() {
	capstan.Reconcile(reconcile)
	capstan.Cleanup(cleanup)
	capstan.HandleError(handleError)
	capstan.DecideRetry(decideRetry)
	capstan.Validate(validate)
	capstan.Initialize(initialize)
	capstan.Desired("first", first)
	capstan.Desired("extra", extra)
	capstan.DesiredSet("all", all)
	capstan.Desired("away", away)
	capstan.Desired("brief", brief)
	capstan.CreateExternal("away", makeAway)
	capstan.CreateExternal("brief", makeBrief)
	capstan.UpdateExternal("away", changeAway)
	capstan.RemoveExternal("brief", removeBrief)
	capstan.PollOne("registry", registry)
	capstan.Match("same-data", sameData)
	capstan.Condition("wanted", wanted)
	capstan.Condition("ready", ready)
	capstan.Poll("themes", themes)
	capstan.PollOne("domains", domains)
	capstan.Receive("hooks", hooks)
	capstan.Accepts("shown", shown)
	capstan.ToPrimaries("to-probes", toProbes)
	capstan.ToSecondaries("to-maps", toMaps)
}

func main() {}

func reconcile(run capstan.Run, p *probe) (capstan.Update, error) {
	if run.Info().PrimaryDeleted {
		run.Log().Info("gone", "text", p.Spec.Text, "generation", p.Generation)
		return capstan.Update{}, nil
	}
	if done := must(run.Memo[int64](capstan.ForPrimary, "done")); done != nil && *done == p.Generation {
		return capstan.Update{}, nil
	}
	if err := fail(run, p, "reconcile"); err != nil {
		return capstan.Update{}, err
	}
	if p.Spec.Again {
		runs := count(run, "runs")
		if runs < 3 {
			return capstan.Update{Reschedule: 10 * time.Millisecond}, nil
		}
		own := capstan.Object{"metadata": capstan.Object{"annotations": capstan.Object{"runs": fmt.Sprint(runs)}, "finalizers": p.Finalizers}}
		return capstan.Update{Status: capstan.Object{"runs": runs}, Object: own, OnlyAt: p.ResourceVersion}, nil
	}
	check(run.SetMemo(capstan.ForPrimary, "done", p.Generation))
	run.Log().Info("asked", "word", word, "generation", p.Generation)
	run.Recorder().Publish(capstan.Event{
		Reason: "Asked", Message: word, Key: "k", Action: "ask", Component: "prober",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": word},
	})
	run.Recorder().Warning("Odd", "nobody knows why")
	made := fmt.Sprintf("%s-%d", p.Name, p.Generation)
	status := capstan.Object{
		"operations": writes(run, p, made), "cache": reads(run, p, made), "memo": memories(run), "workflow": workflows(run), "expected": expected(run),
		"sources": registered(run),
		"run": surroundings(run), "chance": chance(run),
	}
	two := capstan.ObjectRef{APIVersion: "v1", Kind: "ConfigMap", Namespace: p.Namespace, Name: made + "-two"}
	return capstan.Update{Status: status}, run.Remove(two, capstan.RemoveOptions{Propagation: capstan.PropagationBackground, GraceSeconds: new(int)})
}

func cleanup(run capstan.Run, p *probe) (capstan.Deletion, error) {
	calls := count(run, "cleanups")
	run.Log().Info("tidied", "calls", calls)
	return capstan.Deletion{KeepFinalizer: calls == 1, Reschedule: 10 * time.Millisecond}, nil
}

func handleError(run capstan.Run, p *probe, failure capstan.Failure) (*capstan.Handled, error) {
	return &capstan.Handled{Stop: p.Spec.Stop, Status: capstan.Object{"failure": failure}}, nil
}

func decideRetry(run capstan.Run, p *probe, failed capstan.FailedRun) (capstan.NextRetry, error) {
	run.Log().Info("decides", "of", failed.FailureClass, "attempt", failed.Retry.Attempt)
	if p.Spec.StopRetry {
		return capstan.NextRetry{Stop: true}, nil
	}
	return capstan.NextRetry{After: 20 * time.Millisecond}, nil
}

func validate(run capstan.Run, p *probe) ([]capstan.Problem, error) {
	if p.Spec.Wrong == "" {
		return nil, nil
	}
	return []capstan.Problem{{Field: p.Spec.Wrong, Message: word}}, nil
}

func initialize(run capstan.Run, p *probe) error { return run.SetMemo(capstan.ForRun, "prepared", p.Generation) }

func first(run capstan.Run, p *probe) (configMap, error) {
	metadata := capstan.Object{"name": p.Name + "-first", "annotations": capstan.Object{"note": p.Spec.Note}}
	return configMap{"v1", "ConfigMap", metadata, map[string]string{"text": p.Spec.Text}}, fail(run, p, "first")
}

func extra(run capstan.Run, p *probe) (configMap, error) {
	data := must(run.Memo[map[string]string](capstan.ForRun, "word"))
	return configMap{"v1", "ConfigMap", capstan.Object{"name": p.Name + "-extra"}, *data}, nil
}

func all(run capstan.Run, p *probe) (maps []configMap, err error) {
	for _, name := range []string{p.Name + "-all", p.Name + "-all-" + p.Spec.Text} {
		data := map[string]string{"text": p.Spec.Text, "word": word}
		maps = append(maps, configMap{"v1", "ConfigMap", capstan.Object{"name": name}, data})
	}
	return maps, nil
}

func away(run capstan.Run, p *probe) (capstan.Object, error) {
	return capstan.Object{"id": "7", "text": p.Spec.Text, "word": word}, nil
}

func brief(run capstan.Run, p *probe) (capstan.Object, error) { return capstan.Object{"id": "8"}, nil }

func makeAway(run capstan.Run, wanted *capstan.Object, p *probe) (capstan.Created, error) {
	(*wanted)["made"] = word
	return capstan.Created{Thing: wanted}, nil
}

func makeBrief(run capstan.Run, wanted *capstan.Object, p *probe) (capstan.Created, error) {
	(*wanted)["of"] = p.Name
	return capstan.Created{Thing: wanted}, nil
}

func changeAway(run capstan.Run, actual, wanted *capstan.Object, p *probe) (*capstan.Object, error) {
	(*wanted)["was"] = (*actual)["text"]
	return wanted, nil
}

func removeBrief(run capstan.Run, thing *capstan.Object, p *probe) error {
	if (*thing)["of"] != p.Name {
		return fmt.Errorf("%v is another one's", *thing)
	}
	return nil
}

func registry(run capstan.Run, p *probe) (capstan.Things, error) {
	return capstan.Things{Things: []capstan.Object{}}, nil
}

func sameData(run capstan.Run, actual, wanted *configMap, p *probe) (string, error) {
	return capstan.Equal("data, "+word, actual.Data, wanted.Data), nil
}

func wanted(run capstan.Run, p *probe, dependent string) (bool, error) {
	return p.Spec.Wanted == nil || *p.Spec.Wanted, nil
}

func ready(run capstan.Run, p *probe, dependent string) (capstan.Met, error) {
	actual := must(run.Secondary[configMap](dependent))
	return capstan.Met{Met: true, Detail: capstan.Object{"dependent": dependent, "data": actual.Data, "note": p.Spec.Note}}, nil
}

func themes(run capstan.Run) ([]capstan.PrimaryThings, error) {
	settings := must(run.Settings[struct {
		Controller struct{ Namespaces []string }
	}]())
	theme := capstan.Object{"id": "dark", "word": word, "beside": run.Info().Controller == ""}
	return []capstan.PrimaryThings{{Namespace: settings.Controller.Namespaces[0], Name: "p", Things: []capstan.Object{theme}}}, nil
}

func domains(run capstan.Run, p *probe) (capstan.Things, error) {
	var refused *capstan.CallError
	_, err := run.AddFinalizer[probe]("")
	if !errors.As(err, &refused) {
		return capstan.Things{}, fmt.Errorf("not refused: %v", err)
	}
	return capstan.Things{Things: []capstan.Object{{"id": 7, "name": p.Name, "denied": refused.Reason.Error()}}}, nil
}

func hooks(run capstan.Run, request capstan.Request) (capstan.Received, error) {
	asked, err := request.JSON[struct {
		Namespace string
		Present   capstan.Object
		Explode   bool
	}]()
	if err != nil {
		return capstan.Received{}, err
	}
	if asked.Explode {
		explode()
	}
	of := capstan.Told{Namespace: asked.Namespace, Name: "p"}
	present, gone := of, of
	present.Present, gone.Gone = asked.Present, "8"
	text := fmt.Sprintf("%s %s %s", word, request.Path, request.Header("x-kind"))
	return capstan.Received{Status: 201, Text: text, Events: []capstan.Told{present, gone, of}}, nil
}

func shown(run capstan.Run, change capstan.Change[configMap]) (bool, error) {
	return change.Sort != capstan.WasUpdated || change.Before.Data["word"] != change.Object.Data["word"], nil
}

func toProbes(run capstan.Run, asked *configMap) ([]capstan.Key, error) {
	return []capstan.Key{{Name: asked.Data["of"]}}, nil
}

func toMaps(run capstan.Run, p *probe) ([]capstan.Key, error) {
	return []capstan.Key{{Name: "asked"}, {Namespace: p.Namespace, Name: "gone"}}, nil
}

func writes(run capstan.Run, p *probe, made string) capstan.Object {
	owner := capstan.Object{"apiVersion": p.APIVersion, "kind": p.Kind, "name": p.Name, "uid": p.UID}
	named := func(end string) configMap {
		return configMap{"v1", "ConfigMap", capstan.Object{
			"namespace": p.Namespace, "name": made + "-" + end,
			"labels": capstan.Object{"made": made}, "ownerReferences": []capstan.Object{owner},
		}, nil}
	}
	with := func(object configMap, v string) configMap {
		object.Data = map[string]string{"v": v}
		return object
	}
	must(run.Create(named("two"), capstan.WriteOptions{Mode: capstan.CacheOnly}))
	created := must(run.Create(with(named("one"), "1")))
	applied := must(run.Apply(with(named("one"), "2")))
	updated := must(run.Update(with(applied, "3")))
	edited := must(run.Edit(with(updated, "4")))
	one := must(capstan.RefOf(edited))
	merged := must(run.MergePatch[configMap](one, data("5")))
	replace := []capstan.Object{{"op": "replace", "path": "/data/v", "value": "6"}}
	patched := must(run.JSONPatch[configMap](one, replace, capstan.WriteOptions{Mode: capstan.ForceFilter}))
	var written []string
	for _, each := range []configMap{created, applied, updated, edited, merged, patched} {
		written = append(written, each.Data["v"])
	}
	_, conflict := run.Update(created, capstan.WriteOptions{Mode: capstan.Optimistic})
	return capstan.Object{
		"written": written, "conflict": refusal(conflict), "denied": refusal(run.Remove(safe(p))),
		"same":    text(must(run.Compare(capstan.ComparisonGeneric, patched, data("6")))),
		"differs": text(must(run.Compare(capstan.ComparisonGeneric, patched, data(word), "/metadata"))),
	}
}

func reads(run capstan.Run, p *probe, made string) capstan.Object {
	maps := capstan.Kind("v1", "ConfigMap")
	page := must(run.Page[configMap](capstan.Query{
		From: maps, Where: capstan.InNamespace(p.Namespace), Labels: "made=" + made, Fields: []string{"/data"}, Limit: 1,
	}))
	names := func(query capstan.Query) (names []string) {
		for _, each := range must(run.List[probe](query)) {
			names = append(names, each.Name)
		}
		return names
	}
	_, missing := run.One[configMap](capstan.Source("nowhere"))
	return capstan.Object{
		"one":       must(run.Secondary[configMap]("first")).Data,
		"named":     must(run.Named[configMap](maps, p.Namespace, made+"-one")).Data,
		"nobody":    must(run.Named[configMap](maps, p.Namespace, "nobody")),
		"related":   names(capstan.Query{From: capstan.Source("maps"), Labels: "made in (" + made + ")"}),
		"page":      capstan.Object{"data": page.Items[0].Data, "labels": page.Items[0].Metadata["labels"], "more": page.Next != ""},
		"primaries": names(capstan.Query{From: capstan.Primaries(), Where: capstan.Everywhere()}),
		"indexed":   names(capstan.Query{From: capstan.Primaries(), Where: capstan.Indexed("by-text", p.Spec.Text)}),
		"missing":   refusal(missing),
		"led":       names(capstan.Query{From: capstan.Source("asked")}),
		"polled": capstan.Object{
			"themes": must(run.Secondaries[capstan.Object]("themes")),
			"domain": must(run.Secondary[capstan.Object]("domains")),
			"named":  must(run.Named[capstan.Object](capstan.Source("themes"), "", "dark")),
		},
	}
}

func memories(run capstan.Run) capstan.Object {
	check(run.SetMemo(capstan.ForRun, "word", capstan.Object{"word": word}))
	check(run.SetMemo(capstan.ForPlugin, "word", capstan.Object{"word": word}))
	check(run.SetMemo(capstan.ForPlugin, "gone", word))
	check(run.RemoveMemo(capstan.ForPlugin, "gone"))
	return capstan.Object{
		"run":     must(run.Memo[capstan.Object](capstan.ForRun, "word")),
		"primary": must(run.Memo[int](capstan.ForPrimary, "done")),
		"plugin":  must(run.Memo[capstan.Object](capstan.ForPlugin, "word")),
		"gone":    must(run.Memo[string](capstan.ForPlugin, "gone")),
		"prepared": must(run.Memo[int64](capstan.ForRun, "prepared")),
		"full":    refusal(run.SetMemo(capstan.ForPrimary, "long", strings.Repeat("x", 5000))),
	}
}

func expected(run capstan.Run) capstan.Object {
	yes, no := func() (bool, error) { return true, nil }, func() (bool, error) { return false, nil }
	told := capstan.Object{"set": must(run.Expectations().CheckAndSet("word", time.Hour, no)), "pending": run.Expectations().Pending()}
	told["check"], told["done"] = must(run.Expectations().Check("word", no)), must(run.Expectations().Check("word", yes))
	told["gone"], told["cleared"] = run.Expectations().Pending(), run.Expectations().Clear("word")
	told["refused"] = refusal(run.Expectations().Expect("", time.Second))
	return told
}

func registered(run capstan.Run) capstan.Object {
	informer := func(kind string) capstan.Object {
		return capstan.Object{"informer": capstan.Object{"apiVersion": "v1", "kind": kind, "labelSelector": "nobody=has"}}
	}
	told := capstan.Object{"new": must(run.Register("more", informer("ConfigMap")))}
	told["again"] = must(run.Register("more", informer("ConfigMap")))
	told["found"] = len(must(run.Secondaries[capstan.Object]("more")))
	_, denied := run.Register("keys", informer("Secret"))
	_, invalid := run.Register("bad", capstan.Object{"informer": capstan.Object{}})
	told["denied"], told["invalid"], told["declared"] = refusal(denied), refusal(invalid), refusal(run.Deregister("maps"))
	thing := capstan.Object{"id": 8}
	told["kept"], told["gone"] = refusal(run.Remember("maps", thing, thing)), refusal(run.Forget("nowhere", "8"))
	if err := errors.Join(run.Deregister("more"), run.Deregister("more")); err != nil {
		panic(err)
	}
	return told
}

func workflows(run capstan.Run) capstan.Object {
	_, unknown := run.Workflow("unknown").Cleanup()
	return capstan.Object{
		"managed":   run.Workflow("").LastResult(),
		"dependent": must(run.Dependent("extra").Reconcile()),
		"flow":      must(run.Workflow("flow").Reconcile()),
		"last":      run.Workflow("flow").LastResult(),
		"removed":   must(run.Dependent("extra").Remove()),
		"many":      must(run.Workflow("many").Reconcile()),
		"away":      must(run.Workflow("away").Reconcile()),
		"seen":      must(run.Secondary[capstan.Object]("away")),
		"brief":     []any{must(run.Dependent("brief").Reconcile()), must(run.Dependent("brief").Remove())},
		"unknown":   refusal(unknown),
	}
}

func surroundings(run capstan.Run) capstan.Object {
	settings := must(run.Settings[struct {
		Controller struct {
			Workflow struct {
				Dependents map[string]struct{ Config capstan.Object }
			}
		}
	}]())
	return capstan.Object{
		"info": run.Info(), "config": must(run.Config[capstan.Object]()),
		"settings": settings.Controller.Workflow.Dependents["first"].Config,
	}
}

// chance returns what is another each time.
func chance(run capstan.Run) capstan.Object {
	return capstan.Object{
		"now": run.Now().Format(time.RFC3339), "nowMs": run.NowMs(), "uuid": run.UUID(), "bytes": len(run.RandomBytes(8)),
		"leftMs": run.TimeLeft().Milliseconds(), "imminent": run.NextImminent(),
		"clockMs": time.Now().UnixMilli(), "dice": rand.Text(),
	}
}

func fail(run capstan.Run, p *probe, where string) error {
	switch how := p.Spec.Fail[where]; {
	case how == "error", how == "once" && run.Retry() == nil:
		return fmt.Errorf("%s has failed: %s", where, word)
	case how == "denied":
		return run.Remove(safe(p))
	case how == "explode":
		explode()
	}
	return nil
}

func explode() { panic("exploded: " + word) }

func safe(p *probe) capstan.ObjectRef {
	return capstan.ObjectRef{APIVersion: "v1", Kind: "Secret", Namespace: p.Namespace, Name: "safe"}
}

func data(v string) capstan.Object { return capstan.Object{"data": capstan.Object{"v": v}} }

// count returns how often it was called for the primary.
func count(run capstan.Run, key string) int {
	calls := 1
	if before := must(run.Memo[int](capstan.ForPrimary, key)); before != nil {
		calls += *before
	}
	check(run.SetMemo(capstan.ForPrimary, key, calls))
	return calls
}

// refusal returns what a refusal says.
func refusal(err error) any {
	var refused *capstan.CallError
	if !errors.As(err, &refused) {
		return fmt.Sprintf("not refused: %v", err)
	}
	return capstan.Object{"reason": refused.Reason.Error(), "code": refused.Code, "message": refused.Message}
}

// text returns nil for an empty text.
func text(of string) any {
	if of == "" {
		return nil
	}
	return of
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
