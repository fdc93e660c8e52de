// Decides what becomes of texts that are not UTF-8: the contract has none, and one would end the instance.

package capstan

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// inUTF8 returns a text of which all is UTF-8: bytes that are none become U+FFFD.
func inUTF8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// answerInUTF8 returns an answer for the daemon in which all texts are UTF-8. Documents are already, by encode.
func answerInUTF8[T any](given T) T {
	switch of := any(&given).(type) {
	case *string:
		*of = inUTF8(*of)
	case *[]Problem:
		*of = each(*of, func(one *Problem) { one.Field, one.Message = inUTF8(one.Field), inUTF8(one.Message) })
	case *[]Key:
		*of = each(*of, func(one *Key) { one.Namespace, one.Name = inUTF8(one.Namespace), inUTF8(one.Name) })
	case *[]primaryResources:
		*of = each(*of, func(one *primaryResources) { one.namespace, one.name = inUTF8(one.namespace), inUTF8(one.name) })
	case *answer:
		of.text = inUTF8(of.text)
		of.events = each(of.events, func(one *learned) {
			one.namespace, one.name, one.gone = inUTF8(one.namespace), inUTF8(one.name), inUTF8(one.gone)
		})
	}
	return given
}

// errorInUTF8 returns an error that has a text, which is UTF-8.
func errorInUTF8(err error) error {
	if err == nil {
		return nil
	}
	switch text := err.Error(); {
	case text == "":
		return errors.New("an error without a message")
	case !utf8.ValidString(text):
		return errors.New(inUTF8(text))
	default:
		return err
	}
}

// each returns a copy of a list in which each item is changed; the list itself is the author's.
func each[T any](list []T, change func(*T)) []T {
	list = slices.Clone(list)
	for i := range list {
		change(&list[i])
	}
	return list
}

// eachInUTF8 does so with texts.
func eachInUTF8(texts []string) []string {
	return each(texts, func(text *string) { *text = inUTF8(*text) })
}

// askingInUTF8 is a daemon that is asked in UTF-8. It embeds none, so that nothing new is forgotten here.
type askingInUTF8 struct{ daemon Daemon }

func (a askingInUTF8) Run() *RunInfo           { return a.daemon.Run() }
func (a askingInUTF8) NextImminent() bool      { return a.daemon.NextImminent() }
func (a askingInUTF8) TimeLeft() time.Duration { return a.daemon.TimeLeft() }
func (a askingInUTF8) Settings() string        { return a.daemon.Settings() }
func (a askingInUTF8) Config() string          { return a.daemon.Config() }

func (a askingInUTF8) FindAll(query Query) (Page[string], error) {
	query.From, query.Fields = placeInUTF8(query.From), eachInUTF8(query.Fields)
	query.Labels, query.After = inUTF8(query.Labels), inUTF8(query.After)
	where := &query.Where
	where.Namespace, where.Index, where.Key = inUTF8(where.Namespace), inUTF8(where.Index), inUTF8(where.Key)
	return a.daemon.FindAll(query)
}

func (a askingInUTF8) FindOne(place Place) (*string, error) {
	return a.daemon.FindOne(placeInUTF8(place))
}

func (a askingInUTF8) FindNamed(place Place, namespace, name string) (*string, error) {
	return a.daemon.FindNamed(placeInUTF8(place), inUTF8(namespace), inUTF8(name))
}

func (a askingInUTF8) Write(verb Verb, object string, options WriteOptions) (string, error) {
	return a.daemon.Write(verb, inUTF8(object), optionsInUTF8(options))
}

func (a askingInUTF8) Patch(verb Verb, target ObjectRef, patch string, options WriteOptions) (string, error) {
	return a.daemon.Patch(verb, refInUTF8(target), inUTF8(patch), optionsInUTF8(options))
}

func (a askingInUTF8) Remove(target ObjectRef, options RemoveOptions) error {
	options.UID, options.ResourceVersion = inUTF8(options.UID), inUTF8(options.ResourceVersion)
	return a.daemon.Remove(refInUTF8(target), options)
}

func (a askingInUTF8) Finalize(verb Verb, finalizer string) (string, error) {
	return a.daemon.Finalize(verb, inUTF8(finalizer))
}

func (a askingInUTF8) Compare(by Comparison, actual, desired string, ignore []string) (string, error) {
	return a.daemon.Compare(by, inUTF8(actual), inUTF8(desired), eachInUTF8(ignore))
}

func (a askingInUTF8) RunWorkflow(direction Direction, name string) (WorkflowResult, error) {
	return a.daemon.RunWorkflow(direction, inUTF8(name))
}

func (a askingInUTF8) RunDependent(direction Direction, name string) (NodeResult, error) {
	return a.daemon.RunDependent(direction, inUTF8(name))
}

func (a askingInUTF8) LastResult(name string) *WorkflowResult {
	return a.daemon.LastResult(inUTF8(name))
}

func (a askingInUTF8) Expect(name string, timeout time.Duration) error {
	return a.daemon.Expect(inUTF8(name), timeout)
}

func (a askingInUTF8) Expected() *Expectation { return a.daemon.Expected() }

func (a askingInUTF8) ClearExpectation(name string) bool {
	return a.daemon.ClearExpectation(inUTF8(name))
}

func (a askingInUTF8) Register(name, declaration string) (bool, error) {
	return a.daemon.Register(inUTF8(name), inUTF8(declaration))
}

func (a askingInUTF8) Deregister(name string) error { return a.daemon.Deregister(inUTF8(name)) }

func (a askingInUTF8) Remember(name, actual string, replaced *string) error {
	return a.daemon.Remember(inUTF8(name), inUTF8(actual), someInUTF8(replaced))
}

func (a askingInUTF8) Forget(name, id string) error {
	return a.daemon.Forget(inUTF8(name), inUTF8(id))
}

func (a askingInUTF8) Memo(lifetime Lifetime, key string) *string {
	return a.daemon.Memo(lifetime, inUTF8(key))
}

func (a askingInUTF8) SetMemo(lifetime Lifetime, key string, value *string) error {
	return a.daemon.SetMemo(lifetime, inUTF8(key), someInUTF8(value))
}

func (a askingInUTF8) Publish(event Event) {
	event.Reason, event.Message, event.Key = inUTF8(event.Reason), inUTF8(event.Message), inUTF8(event.Key)
	event.Action, event.Component = inUTF8(event.Action), inUTF8(event.Component)
	event.Labels, event.Annotations = pairsInUTF8(event.Labels), pairsInUTF8(event.Annotations)
	a.daemon.Publish(event)
}

func (a askingInUTF8) Log(level slog.Level, message string, fields [][2]string) {
	a.daemon.Log(level, inUTF8(message), each(fields, func(field *[2]string) {
		field[0], field[1] = inUTF8(field[0]), inUTF8(field[1])
	}))
}

func (a askingInUTF8) Now() time.Time               { return a.daemon.Now() }
func (a askingInUTF8) RandomBytes(count int) []byte { return a.daemon.RandomBytes(count) }
func (a askingInUTF8) UUID() string                 { return a.daemon.UUID() }

func placeInUTF8(place Place) Place {
	place.Source, place.APIVersion, place.Kind = inUTF8(place.Source), inUTF8(place.APIVersion), inUTF8(place.Kind)
	return place
}

func refInUTF8(ref ObjectRef) ObjectRef {
	return ObjectRef{inUTF8(ref.APIVersion), inUTF8(ref.Kind), inUTF8(ref.Namespace), inUTF8(ref.Name)}
}

func optionsInUTF8(options WriteOptions) WriteOptions {
	options.Subresource, options.Source = inUTF8(options.Subresource), inUTF8(options.Source)
	return options
}

func someInUTF8(text *string) *string {
	if text == nil {
		return nil
	}
	some := inUTF8(*text)
	return &some
}

func pairsInUTF8(pairs map[string]string) map[string]string {
	if pairs == nil {
		return nil
	}
	told := make(map[string]string, len(pairs))
	for name, value := range pairs {
		told[inUTF8(name)] = inUTF8(value)
	}
	return told
}
