// What a page needs and is told, as values.

package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	"github.com/capstan-dev/capstan/sdk-guest/go/capstantest"
)

const (
	good    = "<html><body>hello</body></html>"
	message = "spec.html needs <html> and </html>"
)

type object = capstan.Object

func page(html string) *WebPage {
	return &WebPage{
		Metadata: capstan.Metadata{Name: "hello", Namespace: "web", Generation: 3},
		Spec:     Spec{HTML: html},
	}
}

var run = new(capstantest.Daemon).Run()

func equal(t *testing.T, actual, expected any) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Errorf("\n  is       %#v\n  expected %#v", actual, expected)
	}
}

// desired returns what a dependent of a good page should be.
func desired(t *testing.T, function func(capstan.Run, *WebPage) (object, error)) object {
	t.Helper()
	object, err := function(run, page(good))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func TestAGoodPageIsToldSoFromThePageAlone(t *testing.T) {
	update, err := reconcile(run, page(good))
	equal(t, err, nil)
	equal(t, update, capstan.Update{Status: Status{AreWeGood: true, HTMLConfigMap: "hello-html", ObservedGeneration: 3}})
}

func TestBadHTMLFailsTheConfigMapAndEndsInTheStatus(t *testing.T) {
	for _, html := range []string{"hello", "<html>", "</html>", ""} {
		if _, err := configMap(run, page(html)); err == nil || err.Error() != message {
			t.Errorf("%q: %v", html, err)
		}
		control, err := handleError(run, page(html), capstan.Failure{Origin: capstan.FromWorkflow, Message: "configmap: " + message})
		equal(t, err, nil)
		equal(t, control, &capstan.Handled{Status: Status{ErrorMessage: message, ObservedGeneration: 3}, Stop: true})
	}
}

func TestAFailureOfAGoodPageIsRetried(t *testing.T) {
	control, err := handleError(run, page(good), capstan.Failure{Origin: capstan.FromUpdate})
	equal(t, err, nil)
	equal(t, control, (*capstan.Handled)(nil))
}

func TestTheConfigMapHasThePage(t *testing.T) {
	equal(t, desired(t, configMap), object{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   object{"name": "hello-html", "labels": map[string]string{"app": "hello"}},
		"data":       object{"index.html": good},
	})
}

func TestTheDeploymentMountsTheConfigMap(t *testing.T) {
	pod := desired(t, deployment)["spec"].(object)["template"].(object)["spec"].(object)
	equal(t, pod["volumes"], []object{{"name": "html", "configMap": object{"name": "hello-html"}}})
	mounts := pod["containers"].([]object)[0]["volumeMounts"].([]object)
	equal(t, mounts[0]["name"], "html")
}

func TestDeploymentAndServiceSelectTheSamePods(t *testing.T) {
	labels := map[string]string{"app": "hello"}
	spec := desired(t, deployment)["spec"].(object)
	equal(t, spec["selector"], object{"matchLabels": labels})
	equal(t, spec["template"].(object)["metadata"], object{"labels": labels})
	equal(t, desired(t, service)["spec"].(object)["selector"], labels)
}

func TestTheIngressLeadsToTheService(t *testing.T) {
	rule := desired(t, ingress)["spec"].(object)["rules"].([]object)[0]
	path := rule["http"].(object)["paths"].([]object)[0]
	service := desired(t, service)
	port := service["spec"].(object)["ports"].([]object)[0]["port"]
	name := service["metadata"].(object)["name"]
	equal(t, path["backend"], object{"service": object{"name": name, "port": object{"number": port}}})
}

func TestEveryDependentOfTheManifestIsRegistered(t *testing.T) {
	manifest, err := os.ReadFile("webpage-go.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, dependents, _ := strings.Cut(string(manifest), "dependents:\n")
	expected := []capstan.Registration{{Interface: "reconciler"}, {Interface: "error-handler"}}
	for line := range strings.Lines(dependents) {
		name, isName := strings.CutSuffix(strings.TrimPrefix(line, "          "), ":\n")
		if isName && !strings.ContainsAny(name, " #") {
			expected = append(expected, capstan.Registration{Interface: "dependent", Name: name})
		}
	}
	equal(t, len(expected), 6)
	equal(t, capstan.Registered(), expected)
}
