// The run that a function is called for.

package capstan

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Run is the run that a function is called for, and all that it may ask the daemon. It is a context, too: its deadline is
// that of the call. It ends with the call, so don't keep it.
type Run struct {
	context.Context
	daemon Daemon
}

// On returns a run that asks this daemon; unit tests get theirs from capstantest.
func On(daemon Daemon) Run {
	daemon = askingInUTF8{daemon}
	return Run{callContext{context.Background(), daemon}, daemon}
}

// RunInfo is what is known about a run from its start.
type RunInfo struct {
	// Controller is the controller's name.
	Controller string `json:"controller"`
	// Retry is the retry state; nil on a fresh run.
	Retry *Retry `json:"retry,omitempty"`
	// PrimaryDeleted says, in all-events mode, that the primary is gone and the object the last one known.
	PrimaryDeleted bool `json:"primaryDeleted"`
	// FinalStateUnknown says, in all-events mode, that there may have been later versions.
	FinalStateUnknown bool `json:"finalStateUnknown"`
}

// Retry says how often the primary has failed in a row.
type Retry struct {
	// Attempt is the number of retries so far; 0 at the first failure.
	Attempt int `json:"attempt"`
	// Last is true if no retry follows a failure of this run.
	Last bool `json:"last"`
}

// Info returns what is known about the run from its start; nothing in a call beside all runs.
func (r Run) Info() RunInfo {
	if info := r.ask().Run(); info != nil {
		return *info
	}
	return RunInfo{}
}

// Retry returns the retry state; nil on a fresh run.
func (r Run) Retry() *Retry { return r.Info().Retry }

// NextImminent says whether an event for this primary is waiting already, so that another run follows at once.
func (r Run) NextImminent() bool { return r.ask().NextImminent() }

// TimeLeft returns how long the current call may still take.
func (r Run) TimeLeft() time.Duration { return r.ask().TimeLeft() }

// Settings returns the settings in force: "controller" as in the manifest, with the config of each dependent, and "daemon"
// with identity, namespace and version. T names the fields that are of interest, or is [Object].
func (r Run) Settings[T any]() (T, error) {
	settings, err := decode[T](r.ask().Settings())
	return settings, within("settings", err)
}

// Config returns the config of the plugin in the manifest. T names its fields, or is [Object].
func (r Run) Config[T any]() (T, error) {
	config, err := decode[T](r.ask().Config())
	return config, within("config", err)
}

// Log returns a logger that writes to the daemon's log, which adds plugin, controller and primary. In a component, slog's
// own default logger does the same, and so does package log.
func (r Run) Log() *slog.Logger { return slog.New(logHandler{daemon: r.ask()}) }

// Now returns the daemon's time, in UTC and to the second, as it is fit for a status. In a component, time.Now is the same time more
// precisely; here a test can set it.
func (r Run) Now() time.Time { return r.ask().Now().UTC().Truncate(time.Second) }

// NowMs returns the same time in milliseconds since 1970, with fractions.
func (r Run) NowMs() float64 { return float64(r.ask().Now().UnixMicro()) / 1000 }

// RandomBytes returns so many random bytes. In a component, crypto/rand does the same.
func (r Run) RandomBytes(count int) []byte {
	bytes := make([]byte, 0, max(0, count))
	for len(bytes) < count {
		// The daemon gives 4096 at once.
		bytes = append(bytes, r.ask().RandomBytes(min(count-len(bytes), 4096))...)
	}
	return bytes
}

// UUID returns a random UUID (version 4).
func (r Run) UUID() string { return r.ask().UUID() }

// ask returns the daemon.
func (r Run) ask() Daemon {
	if r.daemon == nil {
		panic("this capstan.Run is empty: take the one that your function is given, or in a test that of a capstantest.Daemon")
	}
	return r.daemon
}

// callContext is a context whose deadline is the call's. Nothing is ever cancelled: the daemon ends a call that takes longer.
type callContext struct {
	context.Context
	daemon Daemon
}

// Deadline returns when the call has to be over.
func (c callContext) Deadline() (time.Time, bool) {
	return time.Now().Add(c.daemon.TimeLeft()), true
}

// within says where an error comes from.
func within(place string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", place, err)
}
