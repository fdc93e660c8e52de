// Kubernetes Events about the primary.

package capstan

// Event is a Kubernetes Event about the primary, which kubectl describe shows.
type Event struct {
	// Warning says that somebody should look; else all is as it should be.
	Warning bool
	// Reason is one word in CamelCase, for programs.
	Reason string
	// Message is a sentence, for people.
	Message string
	// Key: events with the same one are counted as one; empty = those with the same message.
	Key string
	// Action is what was being done.
	Action string
	// Component is which part of the component reports it; it becomes the annotation capstan.dev/component.
	Component string
	// Labels of the Event.
	Labels map[string]string
	// Annotations of the Event.
	Annotations map[string]string
}

// Recorder records Kubernetes Events about the primary. Best effort.
type Recorder struct{ run Run }

// Recorder returns what records Events.
//
//	run.Recorder().Normal("Published", "the page is online")
func (r Run) Recorder() Recorder { return Recorder{r} }

// Normal records that all is as it should be.
func (r Recorder) Normal(reason, message string) {
	r.Publish(Event{Reason: reason, Message: message})
}

// Warning records that somebody should look.
func (r Recorder) Warning(reason, message string) {
	r.Publish(Event{Warning: true, Reason: reason, Message: message})
}

// Publish records an Event with all that can be said of it.
func (r Recorder) Publish(event Event) { r.run.ask().Publish(event) }
