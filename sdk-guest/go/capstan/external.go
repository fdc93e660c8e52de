// Decides what an author's functions for things outside of the cluster get and answer, and how the daemon's calls reach them.

package capstan

import "errors"

// Created is a thing outside of the cluster that was created.
type Created struct {
	// Thing is what it is now: JSON with its id where the source's "id" in the manifest says.
	Thing any
	// State is the Kubernetes object that remembers the id; only with "state" in the manifest. It is written at once, and deleted together
	// with the thing.
	State any
}

// CreateExternal registers what creates what is desired of a dependent outside of the cluster ("external" in the manifest). A component that
// has it has [UpdateExternal] and [RemoveExternal] as well. It has to bear being repeated: the daemon may end before it has kept the answer.
func CreateExternal[P, T any](dependent string, function func(run Run, desired *T, primary *P) (Created, error)) {
	Controller("").CreateExternal(dependent, function)
}

// UpdateExternal registers what makes a thing outside of the cluster as desired. The function returns the thing as it is then, with the same
// id.
func UpdateExternal[P, T any](dependent string, function func(run Run, actual, desired *T, primary *P) (*T, error)) {
	Controller("").UpdateExternal(dependent, function)
}

// RemoveExternal registers what removes a thing outside of the cluster. That it is gone already is a success.
func RemoveExternal[P, T any](dependent string, function func(run Run, actual *T, primary *P) error) {
	Controller("").RemoveExternal(dependent, function)
}

// CreateExternal is like the function [CreateExternal], for one controller.
func (c Controller) CreateExternal[P, T any](dependent string, function func(run Run, desired *T, primary *P) (Created, error)) {
	c.register(creator, dependent, function == nil, creatorOf(function))
}

// UpdateExternal is like the function [UpdateExternal], for one controller.
func (c Controller) UpdateExternal[P, T any](dependent string, function func(run Run, actual, desired *T, primary *P) (*T, error)) {
	c.register(updater, dependent, function == nil, updaterOf(function))
}

// RemoveExternal is like the function [RemoveExternal], for one controller.
func (c Controller) RemoveExternal[P, T any](dependent string, function func(run Run, actual *T, primary *P) error) {
	c.register(remover, dependent, function == nil, removerOf(function))
}

// The registered functions as the contract has them: JSON in, answers with JSON out.
type (
	creatorFunc func(run Run, desired, primary string) (created, error)
	updaterFunc func(run Run, actual, desired, primary string) (string, error)
	removerFunc func(run Run, actual, primary string) error
)

// created is a [Created] as the contract has it; the state is empty if there is none.
type created struct {
	actual, state string
}

func creatorOf[P, T any](function func(Run, *T, *P) (Created, error)) creatorFunc {
	return func(run Run, desired, text string) (created, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return created{}, err
		}
		wanted, err := decode[T](desired)
		if err != nil {
			return created{}, within("the desired state", err)
		}
		made, err := function(run, &wanted, primary)
		if err != nil {
			return created{}, err
		}
		if nothing(made.Thing) {
			return created{}, errors.New("the thing that was created is nil")
		}
		answer := created{}
		if answer.actual, err = encode(made.Thing); err != nil {
			return created{}, within("the thing that was created", err)
		}
		if !nothing(made.State) {
			answer.state, err = encode(made.State)
		}
		return answer, within("the state", err)
	}
}

func updaterOf[P, T any](function func(Run, *T, *T, *P) (*T, error)) updaterFunc {
	return func(run Run, actual, desired, text string) (string, error) {
		primary, err := primaryOf[P](text)
		if err != nil {
			return "", err
		}
		found, err := decode[T](actual)
		if err != nil {
			return "", within("the thing", err)
		}
		wanted, err := decode[T](desired)
		if err != nil {
			return "", within("the desired state", err)
		}
		now, err := function(run, &found, &wanted, primary)
		if err != nil {
			return "", err
		}
		if now == nil {
			return "", errors.New("the thing that was updated is nil")
		}
		answer, err := encode(now)
		return answer, within("the thing that was updated", err)
	}
}

func removerOf[P, T any](function func(Run, *T, *P) error) removerFunc {
	return func(run Run, actual, text string) error {
		primary, err := primaryOf[P](text)
		if err != nil {
			return err
		}
		found, err := decode[T](actual)
		if err != nil {
			return within("the thing", err)
		}
		return function(run, &found, primary)
	}
}

func serveCreate(run Run, name, desired, primary string) (created, error) {
	controller := controllerOf(run)
	function := lookUp[creatorFunc](creator, controller, name)
	if function == nil {
		return created{}, unknown(creator, controller, name)
	}
	return guarded(run, func() (created, error) { return function(run, desired, primary) })
}

func serveUpdate(run Run, name, actual, desired, primary string) (string, error) {
	controller := controllerOf(run)
	function := lookUp[updaterFunc](updater, controller, name)
	if function == nil {
		return "", unknown(updater, controller, name)
	}
	return guarded(run, func() (string, error) { return function(run, actual, desired, primary) })
}

func serveRemove(run Run, name, actual, primary string) error {
	controller := controllerOf(run)
	function := lookUp[removerFunc](remover, controller, name)
	if function == nil {
		return unknown(remover, controller, name)
	}
	_, err := guarded(run, func() (struct{}, error) { return struct{}{}, function(run, actual, primary) })
	return err
}
