// Decides what an author's receivers get and answer, and how the daemon's calls reach them.

package capstan

import (
	"fmt"
	"strings"
)

// Request is a request from outside, for a function of [Receive]. The daemon has checked its sender as the manifest says.
type Request struct {
	// Path is what follows the source's own address, with the query.
	Path string
	// Headers by their names in small letters; values of one name are joined by ", ".
	Headers map[string]string
	// Body is a text, or in base64 if the manifest says so.
	Body string
}

// Header returns the value of a header, whose name may be written as one likes; empty if there is none.
func (r Request) Header(name string) string { return r.Headers[strings.ToLower(name)] }

// JSON returns the body, read as JSON.
func (r Request) JSON[T any]() (T, error) {
	value, err := decode[T](r.Body)
	return value, within("the body", err)
}

// Received is what a request says, and what it is answered with, once the primaries that it concerns are in the queue.
type Received struct {
	// Status is the HTTP status, from 200 to 599; 0 for 202.
	Status int
	// Text is the body of the answer.
	Text string
	// Events are what the request says of primaries, in order.
	Events []Told
}

// Told is what a request says of a primary: that it has a thing, that one is gone, or, without either, only that it should run. Where the
// manifest says "fetch", the latter has the function of [PollOne] read its things, and it runs if they have changed.
type Told struct {
	// Namespace is that of the primary; empty if it lives in none.
	Namespace string
	// Name is that of the primary.
	Name string
	// Present is a thing that is new or has changed: JSON with an id where the manifest says.
	Present any
	// Gone is the id of a thing that is gone.
	Gone string
}

// Receive registers what understands requests from outside, under the name of a source with "inbound". An error is answered with status
// 500, and nothing of the request is kept. It is called outside of all runs; what it says is there is read with [Run.Secondaries].
func Receive(source string, function func(run Run, request Request) (Received, error)) {
	Controller("").Receive(source, function)
}

// Receive is like the function [Receive], for one controller.
func (c Controller) Receive(source string, function func(run Run, request Request) (Received, error)) {
	c.register(receiver, source, function == nil, receiverOf(function))
}

// header is a name and a value, as the contract has it.
type header struct{ name, value string }

// request is a [Request] as the contract has it.
type request struct {
	path    string
	headers []header
	body    string
}

// answer is a [Received] as the contract has it.
type answer struct {
	status uint16
	text   string
	events []learned
}

// learned is a [Told] as the contract has it: with a thing, with the id of one that is gone, or with neither.
type learned struct {
	namespace, name string
	present         string
	gone            string
}

type receiverFunc func(run Run, of request) (answer, error)

func receiverOf(function func(Run, Request) (Received, error)) receiverFunc {
	return func(run Run, of request) (answer, error) {
		headers := make(map[string]string, len(of.headers))
		for _, header := range of.headers {
			if before, there := headers[header.name]; there {
				header.value = before + ", " + header.value
			}
			headers[header.name] = header.value
		}
		received, err := function(run, Request{of.path, headers, of.body})
		if err != nil {
			return answer{}, err
		}
		return received.answer()
	}
}

func (r Received) answer() (answer, error) {
	if r.Status == 0 {
		r.Status = 202
	}
	if r.Status < 200 || r.Status > 599 {
		return answer{}, fmt.Errorf("the status %d is not from 200 to 599", r.Status)
	}
	events := make([]learned, len(r.Events))
	for i, event := range r.Events {
		events[i] = learned{namespace: event.Namespace, name: event.Name, gone: event.Gone}
		if nothing(event.Present) {
			continue
		}
		if event.Gone != "" {
			return answer{}, fmt.Errorf("the event of %s has both Present and Gone", event.Name)
		}
		var err error
		if events[i].present, err = encode(event.Present); err != nil {
			return answer{}, within("the thing of "+event.Name, err)
		}
	}
	return answer{uint16(r.Status), r.Text, events}, nil
}

func serveReceive(run Run, name string, of request) (answer, error) {
	controller := controllerOf(run)
	function := lookUp[receiverFunc](receiver, controller, name)
	if function == nil {
		return answer{}, unknown(receiver, controller, name)
	}
	return guarded(run, func() (answer, error) { return function(run, of) })
}
