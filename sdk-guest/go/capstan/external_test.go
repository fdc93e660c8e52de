package capstan

import (
	"errors"
	"testing"
)

// domain is a thing outside of the cluster.
type domain struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name"`
}

func TestWhatIsOutsideOfTheClusterIsWrittenByThreeFunctions(t *testing.T) { // XD-1, XD-2
	fresh(t)
	CreateExternal("domain", func(_ Run, wanted *domain, page *page) (Created, error) {
		return Created{Thing: domain{ID: page.Name, Name: wanted.Name}}, nil
	})
	CreateExternal("remembered", func(Run, *domain, *page) (Created, error) {
		return Created{Thing: domain{ID: "1"}, State: Object{"data": Object{"id": "1"}}}, nil
	})
	CreateExternal("nothing", func(Run, *domain, *page) (Created, error) { return Created{}, nil })
	UpdateExternal("domain", func(_ Run, actual, wanted *domain, _ *page) (*domain, error) {
		return &domain{ID: actual.ID, Name: wanted.Name}, nil
	})
	UpdateExternal("nothing", func(Run, *domain, *domain, *page) (*domain, error) { return nil, nil })
	var gone []string
	RemoveExternal("domain", func(_ Run, actual *domain, _ *page) error {
		gone = append(gone, actual.ID)
		return nil
	})
	RemoveExternal("kept", func(Run, *domain, *page) error { return errors.New("not now") })
	run := On(&stub{})
	made, err := serveCreate(run, "domain", `{"name":"a"}`, hello)
	equal(t, err, nil)
	equal(t, made, created{actual: `{"id":"hello","name":"a"}`})
	made, _ = serveCreate(run, "remembered", `{}`, hello)
	equal(t, made, created{actual: `{"id":"1","name":""}`, state: `{"data":{"id":"1"}}`})
	now, _ := serveUpdate(run, "domain", `{"id":"1","name":"a"}`, `{"name":"b"}`, hello)
	equal(t, now, `{"id":"1","name":"b"}`)
	equal(t, serveRemove(run, "domain", `{"id":"1"}`, hello), nil)
	equal(t, len(gone), 1)
	_, err = serveCreate(run, "nothing", `{}`, hello)
	equal(t, text(err), "the thing that was created is nil")
	_, err = serveUpdate(run, "nothing", `{}`, `{}`, hello)
	equal(t, text(err), "the thing that was updated is nil")
	equal(t, text(serveRemove(run, "kept", `{}`, hello)), "not now")
	equal(t, text(serveRemove(run, "x", `{}`, hello)), "this component has no remover of `x`; it has: domain, kept")
}
