//go:build !wasip1

// Answers what a function under test asks.

package capstantest

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

// noon is the time where a test does not set it.
var noon = time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)

// imports answers what a run asks. Each method takes the daemon's guard, as functions under test may use goroutines.
type imports struct{ daemon *Daemon }

// locked returns the daemon, and what lets go of it.
func (i imports) locked() (*Daemon, func()) {
	i.daemon.guard.Lock()
	if i.daemon.cache == nil {
		i.daemon.cache = newCache(i.daemon)
	}
	return i.daemon, i.daemon.guard.Unlock
}

func (i imports) Run() *capstan.RunInfo {
	d, unlock := i.locked()
	defer unlock()
	if d.Beside {
		return nil
	}
	return &capstan.RunInfo{
		Controller:        d.controller(),
		Retry:             d.Retry,
		PrimaryDeleted:    d.PrimaryDeleted,
		FinalStateUnknown: d.FinalStateUnknown,
	}
}

func (i imports) NextImminent() bool { return i.daemon.Imminent }

func (i imports) TimeLeft() time.Duration {
	if i.daemon.Left == 0 {
		return 5 * time.Second
	}
	return i.daemon.Left
}

func (i imports) Settings() string {
	if i.daemon.InForce != nil {
		return text(i.daemon.InForce)
	}
	return text(object{
		"controller": object{"name": i.daemon.controller()},
		"daemon":     object{"identity": "test", "namespace": "default", "version": "0.1.0"},
	})
}

func (i imports) Config() string {
	if i.daemon.Configuration == nil {
		return "{}"
	}
	return text(i.daemon.Configuration)
}

func (i imports) FindAll(query capstan.Query) (capstan.Page[string], error) {
	d, unlock := i.locked()
	defer unlock()
	if err := d.knows(query.From); err != nil {
		return capstan.Page[string]{}, err
	}
	return d.cache.page(d, query)
}

func (i imports) FindOne(place capstan.Place) (*string, error) {
	d, unlock := i.locked()
	defer unlock()
	if err := d.knows(place); err != nil {
		return nil, err
	}
	related := d.cache.find(d, place, capstan.Selection{})
	switch len(related) {
	case 0:
		return nil, nil
	case 1:
		found := text(related[0])
		return &found, nil
	default:
		return nil, refuse(capstan.ErrAmbiguous, 0, "%d objects belong to the primary", len(related))
	}
}

func (i imports) FindNamed(place capstan.Place, namespace, name string) (*string, error) {
	d, unlock := i.locked()
	defer unlock()
	if err := d.knows(place); err != nil {
		return nil, err
	}
	if thing := d.cache.thing(place, name); thing != nil {
		found := text(thing)
		return &found, nil
	}
	for _, found := range d.cache.find(d, place, capstan.Everywhere()) {
		if refOf(found).Name == name && refOf(found).Namespace == namespace {
			found := text(found)
			return &found, nil
		}
	}
	return nil, nil
}

func (i imports) Write(verb capstan.Verb, document string, options capstan.WriteOptions) (string, error) {
	d, unlock := i.locked()
	defer unlock()
	written, err := read(document)
	if err != nil {
		return "", err
	}
	target, err := capstan.RefOf(written)
	if err != nil {
		return "", refuse(capstan.ErrInvalid, 0, "%v", err)
	}
	if err := d.record(verb, target, written, options); err != nil {
		return "", err
	}
	if verb == capstan.VerbCreate && d.cache.get(target) != nil {
		return "", refuse(capstan.ErrConflict, 409, "%s %s exists", target.Kind, target.Name)
	}
	d.cache.put(target, written)
	return document, nil
}

func (i imports) Patch(verb capstan.Verb, target capstan.ObjectRef, document string, options capstan.WriteOptions) (string, error) {
	d, unlock := i.locked()
	defer unlock()
	patch, err := read(document)
	if err != nil {
		return "", err
	}
	if err := d.record(verb, target, patch, options); err != nil {
		return "", err
	}
	known := d.cache.get(target)
	if known == nil {
		return "", refuse(capstan.ErrMissing, 404, "%s %s not found", target.Kind, target.Name)
	}
	patched, err := patched(verb, known, patch)
	if err != nil {
		return "", refuse(capstan.ErrInvalid, 0, "%v", err)
	}
	d.cache.put(target, patched)
	return text(patched), nil
}

func (i imports) Remove(target capstan.ObjectRef, _ capstan.RemoveOptions) error {
	d, unlock := i.locked()
	defer unlock()
	if err := d.record(capstan.VerbRemove, target, nil, capstan.WriteOptions{}); err != nil {
		return err
	}
	d.cache.remove(target)
	return nil
}

func (i imports) Finalize(verb capstan.Verb, finalizer string) (string, error) {
	d, unlock := i.locked()
	defer unlock()
	primary := d.cache.primary()
	if primary == nil {
		return "", refuse(capstan.ErrMissing, 0, "the test has no primary")
	}
	if finalizer == "" {
		finalizer = "test/finalizer"
	}
	target := refOf(primary)
	if err := d.record(verb, target, finalizer, capstan.WriteOptions{}); err != nil {
		return "", err
	}
	changed := withFinalizer(primary, verb, finalizer)
	d.cache.put(target, changed)
	return text(changed), nil
}

func (i imports) Compare(by capstan.Comparison, actual, desired string, ignore []string) (string, error) {
	is, err := read(actual)
	if err != nil {
		return "", err
	}
	should, err := read(desired)
	if err != nil {
		return "", err
	}
	if compare(by, is, should, ignore) {
		return "", nil
	}
	return "the documents differ", nil
}

func (i imports) RunWorkflow(_ capstan.Direction, name string) (capstan.WorkflowResult, error) {
	d, unlock := i.locked()
	defer unlock()
	result, ok := d.Workflows[name]
	if !ok {
		if name == "" {
			name = "of the controller"
		}
		return result, refuse(capstan.ErrMissing, 0, "the test has no workflow %s", name)
	}
	if d.LastResults == nil {
		d.LastResults = map[string]capstan.WorkflowResult{}
	}
	d.LastResults[name] = result
	return result, nil
}

func (i imports) RunDependent(_ capstan.Direction, name string) (capstan.NodeResult, error) {
	d, unlock := i.locked()
	defer unlock()
	result, ok := d.Dependents[name]
	if !ok {
		return result, refuse(capstan.ErrMissing, 0, "the test has no dependent %s", name)
	}
	return result, nil
}

func (i imports) LastResult(name string) *capstan.WorkflowResult {
	d, unlock := i.locked()
	defer unlock()
	if result, ok := d.LastResults[name]; ok {
		return &result
	}
	return nil
}

func (i imports) Expect(name string, _ time.Duration) error {
	d, unlock := i.locked()
	defer unlock()
	if len(name) < 1 || len(name) > 253 {
		return refuse(capstan.ErrInvalid, 0, "the name of an expectation has %d bytes; it may have 1 to 253", len(name))
	}
	d.Expectation = &capstan.Expectation{Name: name}
	return nil
}

func (i imports) Expected() *capstan.Expectation {
	d, unlock := i.locked()
	defer unlock()
	if d.Expectation == nil {
		return nil
	}
	expected := *d.Expectation
	return &expected
}

func (i imports) ClearExpectation(name string) bool {
	d, unlock := i.locked()
	defer unlock()
	was := d.Expectation != nil && d.Expectation.Name == name
	if was {
		d.Expectation = nil
	}
	return was
}

func (i imports) Register(name, declaration string) (bool, error) {
	d, unlock := i.locked()
	defer unlock()
	if refusal, ok := d.SourceRefusals[name]; ok {
		return false, &refusal
	}
	if _, ok := d.Registered[name]; ok {
		return false, nil
	}
	document, err := read(declaration)
	if err != nil {
		return false, err
	}
	if d.Registered == nil {
		d.Registered = map[string]any{}
	}
	d.Registered[name] = document
	return true, nil
}

func (i imports) Deregister(name string) error {
	d, unlock := i.locked()
	defer unlock()
	delete(d.Registered, name)
	return nil
}

func (i imports) Remember(name, actual string, replaced *string) error {
	thing, err := read(actual)
	if err != nil {
		return err
	}
	told := Remembered{Source: name, Actual: thing}
	if replaced != nil {
		if told.Replaced, err = read(*replaced); err != nil {
			return err
		}
	}
	d, unlock := i.locked()
	defer unlock()
	d.Remembered = append(d.Remembered, told)
	return nil
}

func (i imports) Forget(name, id string) error {
	d, unlock := i.locked()
	defer unlock()
	d.Remembered = append(d.Remembered, Remembered{Source: name, Forgotten: id})
	return nil
}

func (i imports) Memo(lifetime capstan.Lifetime, key string) *string {
	d, unlock := i.locked()
	defer unlock()
	value, ok := d.Memos[MemoKey{lifetime, key}]
	if !ok {
		return nil
	}
	kept := text(value)
	return &kept
}

func (i imports) SetMemo(lifetime capstan.Lifetime, key string, value *string) error {
	d, unlock := i.locked()
	defer unlock()
	if value == nil {
		delete(d.Memos, MemoKey{lifetime, key})
		return nil
	}
	kept, err := read(*value)
	if err != nil {
		return err
	}
	if d.Memos == nil {
		d.Memos = map[MemoKey]any{}
	}
	d.Memos[MemoKey{lifetime, key}] = kept
	return nil
}

func (i imports) Publish(event capstan.Event) {
	d, unlock := i.locked()
	defer unlock()
	d.Events = append(d.Events, event)
}

func (i imports) Log(level slog.Level, message string, fields [][2]string) {
	d, unlock := i.locked()
	defer unlock()
	line := Line{Level: level, Message: message, Fields: map[string]string{}}
	for _, field := range fields {
		line.Fields[field[0]] = field[1]
	}
	d.Logs = append(d.Logs, line)
}

func (i imports) Now() time.Time {
	if i.daemon.Clock.IsZero() {
		return noon
	}
	return i.daemon.Clock
}

// RandomBytes is not by chance: tests are to be repeatable.
func (i imports) RandomBytes(count int) []byte {
	d, unlock := i.locked()
	defer unlock()
	bytes := make([]byte, min(count, 4096))
	for at := range bytes {
		d.chance = d.chance*5 + 113
		bytes[at] = d.chance
	}
	return bytes
}

func (i imports) UUID() string {
	b := i.RandomBytes(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (d *Daemon) controller() string {
	if d.Controller == "" {
		return "test"
	}
	return d.Controller
}

// record keeps a write, unless the test refuses such.
func (d *Daemon) record(verb capstan.Verb, target capstan.ObjectRef, body any, options capstan.WriteOptions) error {
	if refusal, ok := d.Refusals[verb]; ok {
		return &refusal
	}
	d.Writes = append(d.Writes, Write{verb, target, body, options.Mode, options.Subresource})
	return nil
}

func refuse(reason capstan.Reason, code int, format string, arguments ...any) error {
	return &capstan.CallError{Reason: reason, Code: code, Message: fmt.Sprintf(format, arguments...)}
}
