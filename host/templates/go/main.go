// Command {{name}} decides what a {{kind}} needs in the cluster, and what its status says.
//
// +groupName={{group}}
// +versionName=v1alpha1
package main

import (
	"strings"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

// From these types, `capstan crd` writes crd.yaml.

// {{kind}} greets somebody.
//
// +kubebuilder:object:root=true
{{called}}// +kubebuilder:printcolumn:name=Ready,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Text,JSONPath=`.status.text`
// +capstan:conditions
type {{kind}} struct {
	capstan.Metadata `json:"metadata"`
	Spec             Spec   `json:"spec"`
	Status           Status `json:"status,omitzero"`
}

// Spec is what is asked for.
type Spec struct {
	// Greeting is what is said, with {name} in it.
	//
	// +kubebuilder:default="Hello, {name}!"
	// +kubebuilder:validation:MaxLength=256
	Greeting string `json:"greeting"`
	// Name is who is greeted.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// Status is what is told. The daemon adds the conditions.
type Status struct {
	// Text is what the ConfigMap says.
	Text string `json:"text,omitempty"`
}

func init() {
	capstan.Validate(validate)
	capstan.Desired("configmap", configMap)
	capstan.Reconcile(reconcile)
}

func main() {}

// validate checks what the types can't say, before anything but the finalizer is written.
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
