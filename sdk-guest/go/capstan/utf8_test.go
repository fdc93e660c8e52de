// Texts that are not UTF-8, wherever an author may hand them over.

package capstan

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

const broken = "a\xffb"

// texts returns all texts of a value, its unexported fields too.
func texts(of reflect.Value) []string {
	var found []string
	switch of.Kind() {
	case reflect.String:
		found = append(found, of.String())
	case reflect.Struct:
		for i := range of.NumField() {
			found = append(found, texts(of.Field(i))...)
		}
	case reflect.Slice:
		for i := range of.Len() {
			found = append(found, texts(of.Index(i))...)
		}
	case reflect.Pointer, reflect.Interface:
		if !of.IsNil() {
			found = append(found, texts(of.Elem())...)
		}
	}
	return found
}

func TestWhatIsAnsweredIsUTF8(t *testing.T) {
	fresh(t)
	problems, keys := []Problem{{broken, broken}}, []Key{{broken, broken}}
	Reconcile(func(Run, *page) (Update, error) {
		return Update{Object: Object{broken: broken}, Status: json.RawMessage(`{"a":"` + broken + `"}`), OnlyAt: broken}, nil
	})
	HandleError(func(Run, *page, Failure) (*Handled, error) { return &Handled{Status: Object{"a": broken}}, nil })
	Validate(func(Run, *page) ([]Problem, error) { return problems, nil })
	Desired("a", func(Run, *page) (json.RawMessage, error) { return json.RawMessage(`{"a":"` + broken + `"}`), nil })
	DesiredSet("a", func(Run, *page) ([]Object, error) { return []Object{{"a": broken}}, nil })
	CreateExternal("a", func(Run, *Object, *page) (Created, error) {
		return Created{Object{"a": broken}, Object{"a": broken}}, nil
	})
	UpdateExternal("a", func(_ Run, _, wanted *Object, _ *page) (*Object, error) { return &Object{"a": broken}, nil })
	Match("a", func(Run, *Object, *Object, *page) (string, error) { return broken, nil })
	Condition("a", func(Run, *page, string) (Met, error) { return Met{Detail: broken}, nil })
	Poll("a", func(Run) ([]PrimaryThings, error) { return []PrimaryThings{{broken, broken, []string{broken}}}, nil })
	PollOne("a", func(Run, *page) (Things, error) { return Things{Things: []string{broken}}, nil })
	Receive("a", func(Run, Request) (Received, error) {
		return Received{Text: broken, Events: []Told{{broken, broken, broken, ""}, {broken, broken, nil, broken}}}, nil
	})
	ToPrimaries("a", func(Run, *page) ([]Key, error) { return keys, nil })
	ToSecondaries("a", func(Run, *page) ([]Key, error) { return keys, nil })
	run := On(&stub{})
	for name, call := range map[string]func() (any, error){
		"Reconcile":      func() (any, error) { return serveReconcile(run, hello) },
		"HandleError":    func() (any, error) { return serveHandleError(run, hello, Failure{}) },
		"Validate":       func() (any, error) { return serveValidate(run, hello) },
		"Desired":        func() (any, error) { return serveDesired(run, "a", hello) },
		"DesiredSet":     func() (any, error) { return serveDesiredSet(run, "a", hello) },
		"CreateExternal": func() (any, error) { return serveCreate(run, "a", "{}", hello) },
		"UpdateExternal": func() (any, error) { return serveUpdate(run, "a", "{}", "{}", hello) },
		"Match":          func() (any, error) { return serveMatch(run, "a", "{}", "{}", hello) },
		"Condition":      func() (any, error) { return serveIsMet(run, "a", "", hello) },
		"Poll":           func() (any, error) { return servePoll(run, "a") },
		"PollOne":        func() (any, error) { return servePollOne(run, "a", hello) },
		"Receive":        func() (any, error) { return serveReceive(run, "a", request{}) },
		"ToPrimaries":    func() (any, error) { return serveToPrimaries(run, "a", hello) },
		"ToSecondaries":  func() (any, error) { return serveToSecondaries(run, "a", hello) },
	} {
		answer, err := call()
		found := strings.Join(texts(reflect.ValueOf(answer)), " ")
		if err != nil || !utf8.ValidString(found) || !strings.Contains(found, "\uFFFD") && !strings.Contains(found, `\ufffd`) {
			t.Errorf("%s answers %q, %v", name, found, err)
		}
	}
	equal(t, problems[0].Message+keys[0].Name, broken+broken)
}

func TestWhatFailsIsToldInUTF8(t *testing.T) {
	fresh(t)
	Desired("returned", func(Run, *page) (Object, error) { return nil, errors.New(broken) })
	Desired("silent", func(Run, *page) (Object, error) { return nil, errors.New("") })
	Desired("panicked", func(Run, *page) (Object, error) { panic(broken) })
	Desired("unspeakable", func(Run, *page) (Object, error) { return nil, (*CallError)(nil) })
	daemon := &stub{}
	said := func(name string) string { _, err := serveDesired(On(daemon), name, hello); return text(err) }
	equal(t, said("returned"), "a\uFFFDb")
	equal(t, said("silent"), "an error without a message")
	equal(t, said("panicked"), "panic: a\uFFFDb")
	equal(t, utf8.ValidString(strings.Join(daemon.logs, " ")), true)
	// A nil pointer that is an error all the same has no text.
	equal(t, strings.HasPrefix(said("unspeakable"), "panic: runtime error: invalid memory address"), true)
}

func TestALongTextIsCutBetweenCharacters(t *testing.T) {
	_, err := RefOf(Object{"a": strings.Repeat("ä", 60)})
	equal(t, text(err), `an object needs apiVersion, kind and metadata.name: {"a":"`+strings.Repeat("ä", 37)+"…")
}
