// Command {{name}} decides what a {{kind}} needs in the cluster, and what its status says.
package main

import (
	"errors"
	"strings"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

// {{kind}} is the custom resource, as far as it is read here.
type {{kind}} struct {
	capstan.Metadata `json:"metadata"`
	Spec             Spec `json:"spec"`
}

// Spec is what is asked for.
type Spec struct {
	Greeting string `json:"greeting"`
	Name     string `json:"name"`
}

// Status is what is told.
type Status struct {
	Text string `json:"text"`
}

func init() {
	capstan.Desired("configmap", configMap)
	capstan.Reconcile(reconcile)
}

func main() {}

// configMap returns the ConfigMap that should exist. It comes before reconcile; if it fails, nothing is written.
func configMap(run capstan.Run, primary *{{kind}}) (capstan.Object, error) {
	text, err := primary.Spec.text()
	return capstan.Object{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   capstan.Object{"name": primary.Name},
		"data":       capstan.Object{"text": text},
	}, err
}

// reconcile finds the ConfigMap there: the status says what it has.
func reconcile(run capstan.Run, primary *{{kind}}) (capstan.Update, error) {
	text, err := primary.Spec.text()
	return capstan.Update{Status: Status{Text: text}}, err
}

// text checks what the schema in crd.yaml does not.
func (s Spec) text() (string, error) {
	if !strings.Contains(s.Greeting, "{name}") {
		return "", errors.New("spec.greeting needs {name}")
	}
	return strings.ReplaceAll(s.Greeting, "{name}", s.Name), nil
}
