//go:build !wasip1

// A panic as its author sees it, from another package.

package capstan_test

import (
	"testing"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	"github.com/capstan-dev/capstan/sdk-guest/go/capstantest"
)

type page struct{ Metadata *capstan.Metadata }

func nameOf(page *page) string { return page.Metadata.Name }

func init() {
	capstan.Reconcile(func(_ capstan.Run, page *page) (capstan.Update, error) {
		return capstan.Update{Status: nameOf(page)}, nil
	})
}

func TestAPanicIsToldWithItsPlaceAndItsStackIsLogged(t *testing.T) {
	daemon := &capstantest.Daemon{}
	err := capstan.Reconciled(daemon.Run(), "{}")
	const message = "invalid memory address or nil pointer dereference"
	expected := "panic: runtime error: " + message + " (in capstan_test.nameOf panic_test.go:16)"
	if err.Error() != expected {
		t.Error(err)
	}
	if len(daemon.Logs) != 1 || daemon.Logs[0].Fields["panic"] != "runtime error: "+message {
		t.Fatal(daemon.Logs)
	}
	const stack = "capstan_test.nameOf panic_test.go:16 < capstan_test.init.0.func1 panic_test.go:20"
	if daemon.Logs[0].Fields["stack"] != stack {
		t.Error(daemon.Logs[0].Fields["stack"])
	}
}
