// Decides what an author's filters and mappers get and answer, and how the daemon's calls reach them.

package capstan

// ChangeSort is a sort of change.
type ChangeSort int

// The sorts of change.
const (
	// WasAdded: the object is new.
	WasAdded ChangeSort = iota
	// WasUpdated: the object has changed.
	WasUpdated
	// WasDeleted: the object is gone.
	WasDeleted
)

// Change is what happened to an object, for a function of [Accepts].
type Change[O any] struct {
	// Sort is the sort of change.
	Sort ChangeSort
	// Object is the object as it is, or was last seen.
	Object *O
	// Before is the object as it was before an update; nil otherwise.
	Before *O
	// FinalStateUnknown is true if a deletion was missed, so that there may have been later versions.
	FinalStateUnknown bool
}

// Key is the name of an object whose kind is clear from the place.
type Key struct {
	// Namespace is its namespace. Empty for that of the object that the function was asked about, or if it lives in none.
	Namespace string
	// Name is its name.
	Name string
}

// Accepts registers what decides which changes matter, where CEL is not enough, under the name that the manifest gives after "export". An
// error lets the change pass. It is called outside of all runs.
func Accepts[O any](name string, function func(run Run, change Change[O]) (bool, error)) {
	Controller("").Accepts(name, function)
}

// ToPrimaries registers what finds the primaries of a secondary, under the name that the manifest gives after "mapper: { export: … }". It
// is called once for each version of a secondary, outside of all runs. An error keeps what was known, and is tried again.
func ToPrimaries[O any](name string, function func(run Run, secondary *O) ([]Key, error)) {
	Controller("").ToPrimaries(name, function)
}

// ToSecondaries registers what finds the secondaries of a primary, under the name that the manifest gives after "secondaries: { export:
// … }". It is called when a run reads them for the first time with this version of its primary. An error is one of that read.
func ToSecondaries[P any](name string, function func(run Run, primary *P) ([]Key, error)) {
	Controller("").ToSecondaries(name, function)
}

// Accepts is like the function [Accepts], for one controller.
func (c Controller) Accepts[O any](name string, function func(run Run, change Change[O]) (bool, error)) {
	c.register(filter, name, function == nil, filterOf(function))
}

// ToPrimaries is like the function [ToPrimaries], for one controller.
func (c Controller) ToPrimaries[O any](name string, function func(run Run, secondary *O) ([]Key, error)) {
	c.register(mapper, name, function == nil, mapperOf("the secondary", function))
}

// ToSecondaries is like the function [ToSecondaries], for one controller.
func (c Controller) ToSecondaries[P any](name string, function func(run Run, primary *P) ([]Key, error)) {
	c.register(secondaryMapper, name, function == nil, mapperOf("the primary", function))
}

// changed is a [Change] as the contract has it; before is empty where there is none.
type changed struct {
	sort           ChangeSort
	object, before string
	unknown        bool
}

type (
	filterFunc func(run Run, change changed) (bool, error)
	mapperFunc func(run Run, object string) ([]Key, error)
)

func filterOf[O any](function func(Run, Change[O]) (bool, error)) filterFunc {
	return func(run Run, of changed) (bool, error) {
		object, err := decode[O](of.object)
		if err != nil {
			return false, within("the object", err)
		}
		change := Change[O]{Sort: of.sort, Object: &object, FinalStateUnknown: of.unknown}
		if of.before != "" {
			before, err := decode[O](of.before)
			if err != nil {
				return false, within("the object as it was", err)
			}
			change.Before = &before
		}
		return function(run, change)
	}
}

func mapperOf[O any](what string, function func(Run, *O) ([]Key, error)) mapperFunc {
	return func(run Run, text string) ([]Key, error) {
		object, err := decode[O](text)
		if err != nil {
			return nil, within(what, err)
		}
		return function(run, &object)
	}
}

func serveAccepts(run Run, name string, change changed) (bool, error) {
	controller := controllerOf(run)
	function := lookUp[filterFunc](filter, controller, name)
	if function == nil {
		return false, unknown(filter, controller, name)
	}
	return guarded(run, func() (bool, error) { return function(run, change) })
}

func serveToPrimaries(run Run, name, secondary string) ([]Key, error) {
	return serveMapper(run, mapper, name, secondary)
}

func serveToSecondaries(run Run, name, primary string) ([]Key, error) {
	return serveMapper(run, secondaryMapper, name, primary)
}

func serveMapper(run Run, kind *kind, name, object string) ([]Key, error) {
	controller := controllerOf(run)
	function := lookUp[mapperFunc](kind, controller, name)
	if function == nil {
		return nil, unknown(kind, controller, name)
	}
	return guarded(run, func() ([]Key, error) { return function(run, object) })
}
