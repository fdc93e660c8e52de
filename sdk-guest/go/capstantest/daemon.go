//go:build !wasip1

// Package capstantest stands in for the daemon in unit tests: an operator's functions are called natively, with values.
//
//	daemon := &capstantest.Daemon{
//		Secondaries: capstantest.Objects{"deployment": {capstan.Object{"status": capstan.Object{"readyReplicas": 1}}}},
//	}
//	update, err := reconcile(daemon.Run(), page)
//	// … daemon.Logs, daemon.Writes, daemon.Events
//
// What a function writes is recorded, and read by it afterwards, as from the daemon's caches. Numbers in what is recorded are of the type
// json.Number, as in any [capstan.Object] that is read.
package capstantest

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/document"
)

// Objects are the objects of sources: the source of a dependent has the dependent's name. An object is of any type that
// encoding/json writes.
type Objects map[string][]any

// Daemon is what a function under test may ask, and what it did. The zero value is a fresh run with empty caches. It may be
// used by several goroutines.
type Daemon struct {
	// Controller is the controller's name; "test" if empty.
	Controller string
	// Retry is the retry state; nil on a fresh run.
	Retry *capstan.Retry
	// Beside says that the call belongs to no run, as those of [capstan.Validate], [capstan.Poll], [capstan.PollOne], [capstan.Receive],
	// [capstan.Accepts], [capstan.ToPrimaries] and [capstan.ToSecondaries]: [capstan.Run.Info] is empty then.
	Beside bool
	// PrimaryDeleted says, in all-events mode, that the primary is gone.
	PrimaryDeleted bool
	// FinalStateUnknown says, in all-events mode, that there may have been later versions.
	FinalStateUnknown bool
	// Imminent says that another run follows at once.
	Imminent bool
	// Left is how long the call may still take; 5 s if zero.
	Left time.Duration
	// InForce is the settings; those of a controller without any if nil.
	InForce any
	// Configuration is the plugin's config; empty if nil.
	Configuration any
	// Clock is the time, which stands still; noon of 31 January 2026 if zero.
	Clock time.Time

	// Primaries are the controller's. The first one is that of the run.
	Primaries []any
	// Sources are those of the controller. Others are refused then, as the daemon refuses them; if nil, one that nothing is known of is empty.
	Sources []string
	// Secondaries are the objects that belong to the primary, by source.
	Secondaries Objects
	// Things are those of the primary outside of the cluster, by source and id; each of any type that encoding/json writes as an object.
	Things map[string]map[string]any
	// Unrelated are objects of sources that do not belong to the primary.
	Unrelated Objects
	// Indexes have the names of objects, by index and key.
	Indexes map[string]map[string][]string

	// Workflows says what becomes of a workflow when it is run; "" is the managed one.
	Workflows map[string]capstan.WorkflowResult
	// LastResults says what has become of a workflow before, and is kept up to date.
	LastResults map[string]capstan.WorkflowResult
	// Dependents says what becomes of a standalone dependent when it is reconciled or removed.
	Dependents map[string]capstan.NodeResult
	// Refusals refuses all writes with a verb.
	Refusals map[capstan.Verb]capstan.CallError

	// SourceRefusals refuses to register sources, by name.
	SourceRefusals map[string]capstan.CallError

	// Registered are the sources that are registered, by name, as they were declared.
	Registered map[string]any
	// Remembered is what was told to sources of things outside of the cluster, in order.
	Remembered []Remembered
	// Expectation is what is expected of the primary; nil if nothing is.
	Expectation *capstan.Expectation
	// Memos are the values that are kept.
	Memos map[MemoKey]any
	// Writes is what was written, in order.
	Writes []Write
	// Logs are the lines of the log.
	Logs []Line
	// Events are the Kubernetes Events.
	Events []capstan.Event

	guard  sync.Mutex
	cache  *cache
	chance byte
}

// MemoKey names a memo.
type MemoKey struct {
	// Lifetime is how long it is kept.
	Lifetime capstan.Lifetime
	// Key is its name.
	Key string
}

// Write is a write that was asked for.
type Write struct {
	// Verb is what was asked for.
	Verb capstan.Verb
	// Target is the object that it concerns.
	Target capstan.ObjectRef
	// Body is the object or the patch; the finalizer's name; nil for a deletion.
	Body any
	// Mode says how it is treated.
	Mode capstan.Mode
	// Subresource is the one that is written, if not the object itself.
	Subresource string
}

// Remembered is what was told to a source of things outside of the cluster.
type Remembered struct {
	// Source is the source.
	Source string
	// Actual is the thing that it was told to remember.
	Actual any
	// Replaced is what that has replaced; nil if nothing.
	Replaced any
	// Forgotten is the id of the thing that it was told to forget.
	Forgotten string
}

// Line is a line of the log.
type Line struct {
	// Level is how important it is.
	Level slog.Level
	// Message is what happened.
	Message string
	// Fields are the facts.
	Fields map[string]string
}

// Run returns the run to call a function with.
func (d *Daemon) Run() capstan.Run { return capstan.On(imports{d}) }

// Read returns a value of the author's type from an object, such as a page from its text: for arranging tests.
func Read[T any](text string) *T {
	var value T
	if err := document.Read(text, &value); err != nil {
		panic(fmt.Sprintf("%v: %s", err, text))
	}
	return &value
}
