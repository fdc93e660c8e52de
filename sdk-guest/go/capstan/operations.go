// Writes to the cluster, beyond what the workflow and an Update do.

package capstan

import "fmt"

// Create creates an object, and returns it as it is then. Fails with [ErrConflict] if it exists. At most one set of options
// is given, here and below.
func (r Run) Create[T any](object T, options ...WriteOptions) (T, error) {
	return r.write(VerbCreate, object, options)
}

// Apply applies an object: server-side apply with the controller's field manager. It is sent exactly as given. It is forced
// if the object is the primary's; of any other, fields that another manager has fail with [ErrConflict].
func (r Run) Apply[T any](object T, options ...WriteOptions) (T, error) {
	return r.write(VerbApply, object, options)
}

// ForceApply applies an object like Apply, but forced, whosever it is: takes fields from other managers.
func (r Run) ForceApply[T any](object T, options ...WriteOptions) (T, error) {
	return r.write(VerbForceApply, object, options)
}

// Update replaces an object.
func (r Run) Update[T any](object T, options ...WriteOptions) (T, error) {
	return r.write(VerbUpdate, object, options)
}

// Edit sends the JSON patch that leads from the cached object to this one; nothing if it is empty.
func (r Run) Edit[T any](object T, options ...WriteOptions) (T, error) {
	return r.write(VerbEdit, object, options)
}

// JSONPatch sends a JSON patch (RFC 6902), and returns the object as it is then.
//
//	_, err := run.JSONPatch[capstan.Object](ref, []capstan.Object{{"op": "remove", "path": "/spec/paused"}})
func (r Run) JSONPatch[T any](target ObjectRef, patch any, options ...WriteOptions) (T, error) {
	return r.patch[T](VerbJSONPatch, target, patch, options)
}

// MergePatch sends a JSON merge patch (RFC 7386), and returns the object as it is then.
func (r Run) MergePatch[T any](target ObjectRef, patch any, options ...WriteOptions) (T, error) {
	return r.patch[T](VerbMergePatch, target, patch, options)
}

// Remove deletes an object. It is a success if it is gone already.
func (r Run) Remove(target ObjectRef, options ...RemoveOptions) error {
	given := first(options)
	if given.GraceSeconds != nil && *given.GraceSeconds < 0 {
		return negative("GraceSeconds", *given.GraceSeconds)
	}
	return r.ask().Remove(target, given)
}

// AddFinalizer adds a finalizer to the primary, the controller's if it is empty, and returns the primary as it is then. Needed
// in all-events mode only, with the one that the manifest names: otherwise the daemon does it. Any other finalizer takes the grants patch and
// delete on the primary's kind.
func (r Run) AddFinalizer[T any](finalizer string) (T, error) {
	return answered[T](r.ask().Finalize(VerbAddFinalizer, finalizer))
}

// RemoveFinalizer removes a finalizer from the primary, the controller's if it is empty, and returns the primary as it is
// then, or the last one known if it is gone.
func (r Run) RemoveFinalizer[T any](finalizer string) (T, error) {
	return answered[T](r.ask().Finalize(VerbRemoveFinalizer, finalizer))
}

// Compare compares without writing, and says what differs; empty if nothing does. Differences under the JSON pointers of
// ignore do not count.
func (r Run) Compare(by Comparison, actual, desired any, ignore ...string) (differs string, err error) {
	actually, err := encode(actual)
	if err != nil {
		return "", within("actual", err)
	}
	wanted, err := encode(desired)
	if err != nil {
		return "", within("desired", err)
	}
	return r.ask().Compare(by, actually, wanted, ignore)
}

// WriteOptions are the fine print of a write. The zero value is what is usual for the verb.
type WriteOptions struct {
	// Mode says how the write is treated.
	Mode Mode
	// CompareBy says how it is compared; if it matches it is not written. Not set, that is [ComparisonByVerb] in the modes [Usual] and
	// [MatchAndFilter], and no comparison in the others.
	CompareBy Comparison
	// Subresource is the subresource to write, such as "status" or "scale"; empty = the object itself.
	Subresource string
	// Source is the source that it concerns, if several watch the kind.
	Source string
	// Actual is an object to compare with instead of the cached one.
	Actual any
}

// Mode says how a write is treated. To another object of the primary's kind the event of a write is news in any mode: it
// causes a run of that object.
type Mode uint8

// The modes.
const (
	// Usual is [Optimistic] and compared for Update, [ForceFilter] for Create, else [MatchAndFilter].
	Usual Mode = iota
	// MatchAndFilter: not written if it matches. The event of the write causes no run.
	MatchAndFilter
	// Optimistic: a newer version than the given one is a conflict. The object or merge patch must carry a resourceVersion, a
	// JSON patch must test it. The event causes no run.
	Optimistic
	// CacheOnly: the caches get the answer. The event causes a run.
	CacheOnly
	// ForceFilter: written in any case. The event causes no run.
	ForceFilter
	// Plain: as from any client, caches not involved. The one mode for kinds that no source watches.
	Plain
)

// Comparison says how objects are compared.
type Comparison uint8

// The comparisons. The zero value leaves the choice to the mode.
const (
	comparisonOfMode Comparison = iota
	// ComparisonByVerb: as fits the verb.
	ComparisonByVerb
	// ComparisonApplied: by our managed fields, taken from the cache.
	ComparisonApplied
	// ComparisonGeneric: by differences; additions are tolerated.
	ComparisonGeneric
	// ComparisonStatusOnly: by differences under status only.
	ComparisonStatusOnly
	// ComparisonEquality: everything must be equal.
	ComparisonEquality
)

// RemoveOptions are the fine print of a deletion. The zero value is what is usual for the kind.
type RemoveOptions struct {
	// Propagation says what becomes of the objects that it owns.
	Propagation Propagation
	// UID: delete only the object with this uid.
	UID string
	// ResourceVersion: delete only this version.
	ResourceVersion string
	// GraceSeconds is how long it gets for its end; nil = what is usual for the kind.
	GraceSeconds *int
}

// Propagation says what becomes of the objects that a deleted one owns.
type Propagation uint8

// The propagations.
const (
	// PropagationUsual: what is usual for the kind.
	PropagationUsual Propagation = iota
	// PropagationBackground: they are deleted afterwards.
	PropagationBackground
	// PropagationForeground: they are deleted before.
	PropagationForeground
	// PropagationOrphan: they stay.
	PropagationOrphan
)

func (r Run) write[T any](verb Verb, object T, options []WriteOptions) (T, error) {
	text, err := encode(object)
	if err != nil {
		return object, err
	}
	return answered[T](r.ask().Write(verb, text, first(options)))
}

func (r Run) patch[T any](verb Verb, target ObjectRef, patch any, options []WriteOptions) (T, error) {
	text, err := encode(patch)
	if err != nil {
		var none T
		return none, within("patch", err)
	}
	return answered[T](r.ask().Patch(verb, target, text, first(options)))
}

// answered reads the object that a write has returned.
func answered[T any](text string, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return decode[T](text)
}

// negative returns the refusal of a count that is negative: the contract has no such.
func negative(field string, count int) error {
	return &CallError{Reason: ErrInvalid, Message: fmt.Sprintf("%s: %d is negative", field, count)}
}

func first[T any](options []T) T {
	if len(options) > 0 {
		return options[0]
	}
	var usual T
	return usual
}
