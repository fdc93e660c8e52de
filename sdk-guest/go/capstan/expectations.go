// One thing per primary that is expected to come true in time.

package capstan

import "time"

// Expectation is what is expected of a primary.
type Expectation struct {
	// Name is its name.
	Name string `json:"name"`
	// TimedOut is true once its time is over.
	TimedOut bool `json:"timedOut"`
}

// Outcome is what has become of an expectation.
type Outcome string

// The outcomes.
const (
	// NotExpected: nothing of this name is expected.
	NotExpected Outcome = ""
	// Fulfilled: it has come true, in time or not; it is expected no more.
	Fulfilled Outcome = "fulfilled"
	// TimedOut: its time is over. It is expected until it is cleared or replaced.
	TimedOut Outcome = "timed-out"
	// Pending: it has not come true yet.
	Pending Outcome = "pending"
)

// Expectations are what is expected of the primary: one thing at a time. The daemon keeps it until it stops; the component itself finds out
// whether it has come true. Nothing calls the component when the time is over: reschedule.
type Expectations struct{ run Run }

// Expectations returns what is expected of the primary.
//
//	outcome, err := run.Expectations().Check("ready", isReady)
//	if outcome == capstan.NotExpected {
//		awaited, err := run.Expectations().CheckAndSet("ready", 30*time.Second, isReady)
//	}
func (r Run) Expectations() Expectations { return Expectations{r} }

// Expect expects something of the primary, in place of anything else. Fails with [ErrInvalid] for a name that is empty or longer than 253 bytes.
func (e Expectations) Expect(name string, timeout time.Duration) error {
	if err := fromZero("timeout", timeout); err != nil {
		return err
	}
	return e.run.ask().Expect(name, timeout)
}

// Pending returns what is expected of the primary; nil if nothing is.
func (e Expectations) Pending() *Expectation { return e.run.ask().Expected() }

// Clear expects this no more, and returns whether it was expected.
func (e Expectations) Clear(name string) bool { return e.run.ask().ClearExpectation(name) }

// CheckAndSet expects something, unless it is so already, and returns whether it is expected now.
func (e Expectations) CheckAndSet(name string, timeout time.Duration, isSo func() (bool, error)) (bool, error) {
	if so, err := isSo(); so || err != nil {
		return false, err
	}
	err := e.Expect(name, timeout)
	return err == nil, err
}

// Check returns what has become of an expectation.
func (e Expectations) Check(name string, isSo func() (bool, error)) (Outcome, error) {
	expected := e.Pending()
	if expected == nil || expected.Name != name {
		return NotExpected, nil
	}
	so, err := isSo()
	switch {
	case err != nil:
		return NotExpected, err
	case so:
		e.Clear(name)
		return Fulfilled, nil
	case expected.TimedOut:
		return TimedOut, nil
	default:
		return Pending, nil
	}
}
