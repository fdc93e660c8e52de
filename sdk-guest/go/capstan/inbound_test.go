package capstan

import "testing"

func TestWhatARequestSaysIsAListOfEvents(t *testing.T) {
	fresh(t)
	Controller("web").Receive("builds", func(_ Run, request Request) (Received, error) {
		build, err := request.JSON[map[string]any]()
		return Received{Events: []Told{{"n", "a", build, ""}, {Name: "b"}, {"n", "a", nil, "7"}}}, err
	})
	Receive("echo", func(_ Run, request Request) (Received, error) {
		return Received{Status: 200, Text: request.Path + " " + request.Header("X-Kind") + " " + request.Body}, nil
	})
	Receive("wrong", func(Run, Request) (Received, error) { return Received{Status: 99}, nil })
	Receive("both", func(Run, Request) (Received, error) {
		return Received{Events: []Told{{"n", "a", 1, "7"}}}, nil
	})
	run := On(&beside{stub{controller: "web"}})

	found, err := serveReceive(run, "builds", request{body: `{"id":1}`})
	equal(t, found, answer{202, "", []learned{{"n", "a", `{"id":1}`, ""}, {"", "b", "", ""}, {"n", "a", "", "7"}}})
	equal(t, err, nil)
	_, err = serveReceive(run, "builds", request{body: "{"})
	equal(t, text(err), "the body: not a valid object: unexpected end of JSON input")
	found, err = serveReceive(run, "echo", request{"/x?y", []header{{"x-kind", "push"}, {"x-kind", "more"}}, "body"})
	equal(t, found, answer{200, "/x?y push, more body", []learned{}})
	equal(t, err, nil)
	_, err = serveReceive(run, "wrong", request{})
	equal(t, text(err), "the status 99 is not from 200 to 599")
	_, err = serveReceive(run, "both", request{})
	equal(t, text(err), "the event of a has both Present and Gone")
	_, err = serveReceive(run, "x", request{})
	equal(t, text(err), "this component has no receiver of `x`; it has: builds, echo, wrong, both")
}
