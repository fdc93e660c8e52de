// Which world a component gets.

package main

import (
	"testing"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

const contract = "/// Doc.\npackage capstan:operator@0.1.7;\n"

func TestAComponentExportsWhatIsRegisteredEachInterfaceOnceAndItsDescription(t *testing.T) {
	registered := []capstan.Registration{
		{Interface: "reconciler"},
		{Interface: "dependent", Name: "configmap"},
		{Interface: "dependent", Name: "service"},
	}
	world, err := World(registered, []byte(contract))
	if err != nil {
		t.Fatal(err)
	}
	expected := `package capstan:author;

world component {
  include capstan:operator/imports@0.1.7;
  export capstan:operator/reconciler@0.1.7;
  export capstan:operator/dependent@0.1.7;
  export capstan:operator/description@0.1.7;
}

world adapter {
  include capstan:go-adapter/adapter;
}
`
	if world != expected {
		t.Error(world)
	}
}

func TestAProgramThatRegistersNothingIsToldHow(t *testing.T) {
	_, err := World(nil, []byte(contract))
	if err == nil || err.Error() != "registers nothing: call capstan.Reconcile and the like in an init function" {
		t.Error(err)
	}
}
