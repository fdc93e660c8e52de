package capstan

import (
	"errors"
	"testing"
)

func TestAFilterSeesTheObjectAsItIsAndWas(t *testing.T) {
	fresh(t)
	Accepts("renamed", func(_ Run, change Change[page]) (bool, error) {
		return change.Before != nil && change.Before.Name != change.Object.Name, nil
	})
	Controller("web").Accepts("missed", func(_ Run, change Change[page]) (bool, error) {
		return change.Sort == WasDeleted && change.FinalStateUnknown, nil
	})
	Accepts("fails", func(Run, Change[page]) (bool, error) { return false, errors.New("no way") })
	run := On(&beside{stub{controller: "web"}})
	other := `{"metadata": {"name": "other"}}`
	for _, row := range []struct {
		name     string
		change   changed
		accepted bool
	}{
		{"renamed", changed{sort: WasAdded, object: hello}, false},
		{"renamed", changed{sort: WasUpdated, object: hello, before: other}, true},
		{"renamed", changed{sort: WasUpdated, object: hello, before: hello}, false},
		{"missed", changed{sort: WasDeleted, object: hello, unknown: true}, true},
		{"missed", changed{sort: WasDeleted, object: hello}, false},
	} {
		accepted, err := serveAccepts(run, row.name, row.change)
		equal(t, accepted, row.accepted)
		equal(t, err, nil)
	}
	_, err := serveAccepts(run, "fails", changed{object: hello})
	equal(t, text(err), "no way")
	_, err = serveAccepts(run, "renamed", changed{object: "{"})
	equal(t, err != nil, true)
	_, err = serveAccepts(run, "x", changed{object: hello})
	equal(t, text(err), "this component has no filter `x`; it has: renamed, missed, fails")
}

func TestAMapperAnswersWithNames(t *testing.T) {
	fresh(t)
	ToPrimaries("to-pages", func(_ Run, page *page) ([]Key, error) { return []Key{{"n", page.Name}, {Name: "b"}}, nil })
	ToSecondaries("to-themes", func(Run, *page) ([]Key, error) { return nil, nil })
	run := On(&beside{stub{controller: "web"}})
	keys, err := serveToPrimaries(run, "to-pages", hello)
	equal(t, keys, []Key{{"n", "hello"}, {Name: "b"}})
	equal(t, err, nil)
	keys, err = serveToSecondaries(run, "to-themes", hello)
	equal(t, len(keys), 0)
	equal(t, err, nil)
	_, err = serveToPrimaries(run, "x", hello)
	equal(t, text(err), "this component has no mapper `x`; it has: to-pages")
	_, err = serveToSecondaries(run, "x", hello)
	equal(t, text(err), "this component has no secondary mapper `x`; it has: to-themes")
}
