// What a {{kind}} needs and is told, as values.

package main

import (
	"reflect"
	"testing"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	"github.com/capstan-dev/capstan/sdk-guest/go/capstantest"
)

var run = new(capstantest.Daemon).Run()

func primary(greeting string) *{{kind}} {
	return &{{kind}}{Metadata: capstan.Metadata{Name: "hello"}, Spec: Spec{Greeting: greeting, Name: "Ada"}}
}

func equal(t *testing.T, actual, expected any) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Errorf("\n  is       %#v\n  expected %#v", actual, expected)
	}
}

func TestTheConfigMapHasTheGreeting(t *testing.T) {
	object, err := configMap(run, primary("Hello, {name}!"))
	equal(t, err, nil)
	equal(t, object["metadata"], capstan.Object{"name": "hello"})
	equal(t, object["data"], capstan.Object{"text": "Hello, Ada!"})
}

func TestTheStatusSaysTheSame(t *testing.T) {
	update, err := reconcile(run, primary("Hello, {name}!"))
	equal(t, err, nil)
	equal(t, update, capstan.Update{Status: Status{Text: "Hello, Ada!"}})
}

func TestAGreetingWithoutANameIsWrong(t *testing.T) {
	missing := capstan.Problem{Field: "spec.greeting", Message: "{name} is missing"}
	for greeting, expected := range map[string][]capstan.Problem{"Hello!": {missing}, "Hello, {name}!": nil} {
		found, err := validate(run, primary(greeting))
		equal(t, err, nil)
		equal(t, found, expected)
	}
}
