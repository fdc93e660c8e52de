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

// Publish records an Event about the primary. Best effort.
func (r Run) Publish(event Event) { r.ask().Publish(event) }

// Event records that all is as it should be.
//
//	run.Event("Published", "the page is online")
func (r Run) Event(reason, message string) {
	r.Publish(Event{Reason: reason, Message: message})
}

// Warning records that somebody should look.
func (r Run) Warning(reason, message string) {
	r.Publish(Event{Warning: true, Reason: reason, Message: message})
}
