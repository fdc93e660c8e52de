// Event sources that come and go while the controller runs.

package capstan

// Register starts a source, declared as in the manifest under sources, and waits until its cache is filled. It returns false if there
// is one of that name, which is then kept.
//
//	keys := capstan.Object{"informer": capstan.Object{"apiVersion": "v1", "kind": "Secret"}}
//	_, err := run.Register("keys", keys)
//
// A source is one of the controller: it wakes all primaries that its objects belong to. Register it in each run; where it is there
// already, that costs nothing. The manifest has to permit watch on the kind. The declaration is of any type that encoding/json writes.
func (r Run) Register(name string, declaration any) (bool, error) {
	document, err := encode(declaration)
	if err != nil {
		return false, err
	}
	return r.ask().Register(name, document)
}

// Deregister stops a source that was started by [Run.Register], if there is one.
func (r Run) Deregister(name string) error { return r.ask().Deregister(name) }
