// Command {{name}} decides what a {{kind}} needs in the cluster, and what its status says.
package main

import (
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
	capstan.Validate(validate)
	capstan.Desired("configmap", configMap)
	capstan.Reconcile(reconcile)
}

func main() {}

// validate checks what the schema in crd.yaml does not, before anything is written.
func validate(run capstan.Run, primary *{{kind}}) ([]capstan.Problem, error) {
	if !strings.Contains(primary.Spec.Greeting, "{name}") {
		missing := capstan.Problem{Field: "spec.greeting", Message: "{name} is missing"}
		return []capstan.Problem{missing}, nil
	}
	return nil, nil
}

// configMap returns the ConfigMap that should exist. It comes before reconcile.
func configMap(run capstan.Run, primary *{{kind}}) (capstan.Object, error) {
	return capstan.Object{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   capstan.Object{"name": primary.Name},
		"data":       capstan.Object{"text": primary.Spec.text()},
	}, nil
}

// reconcile finds the ConfigMap there: the status says what it has.
func reconcile(run capstan.Run, primary *{{kind}}) (capstan.Update, error) {
	return capstan.Update{Status: Status{Text: primary.Spec.text()}}, nil
}

func (s Spec) text() string { return strings.ReplaceAll(s.Greeting, "{name}", s.Name) }
