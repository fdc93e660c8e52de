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

// Remember tells a source of things outside of the cluster that this run has made a thing for its primary, or, if there is one, put it in
// the place of replaced: it is read from now on, and the next poll does not undo it. Nothing happens if something newer is known
// already. Things are of any type that encoding/json writes; a nil one is none.
func (r Run) Remember(name string, actual any, replaced ...any) error {
	document, err := encode(actual)
	if err != nil {
		return err
	}
	if len(replaced) == 0 {
		return r.ask().Remember(name, document, nil)
	}
	before, err := encode(replaced[0])
	if err != nil {
		return err
	}
	if before == "null" {
		return r.ask().Remember(name, document, nil)
	}
	return r.ask().Remember(name, document, &before)
}

// Forget tells a source of things outside of the cluster that this run has removed its primary's thing with this id.
func (r Run) Forget(name, id string) error { return r.ask().Forget(name, id) }

// Deregister stops a source that was started by [Run.Register], if there is one.
func (r Run) Deregister(name string) error { return r.ask().Deregister(name) }
