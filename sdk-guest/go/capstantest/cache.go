//go:build !wasip1

// Decides which objects of a test a question means.

package capstantest

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

// cache decides which objects of a test a question means.
type cache struct{ all []*known }

// known is an object and where it is known.
type known struct {
	home   home
	source string
	object object
	// The id of a thing outside of the cluster.
	id string
}

// home is where an object is known.
type home uint8

const (
	// It belongs to the primary, and is in a source's cache.
	secondary home = iota
	// It is in a source's cache.
	unrelated
	// It is a primary; the first is that of the run.
	primary
	// It was written by the function under test, and no source is known to watch it.
	written
	// It is a thing of the primary outside of the cluster, in a source.
	thing
)

func newCache(d *Daemon) *cache {
	c := &cache{}
	add := func(home home, source string, objects []any) {
		for _, one := range objects {
			c.all = append(c.all, &known{home: home, source: source, object: asObject(one)})
		}
	}
	add(primary, "", d.Primaries)
	for source, objects := range d.Secondaries {
		add(secondary, source, objects)
	}
	for source, objects := range d.Unrelated {
		add(unrelated, source, objects)
	}
	for source, things := range d.Things {
		for _, id := range slices.Sorted(maps.Keys(things)) {
			c.all = append(c.all, &known{home: thing, source: source, object: asObject(things[id]), id: id})
		}
	}
	return c
}

// knows refuses a source that the controller does not have, if the test says which it has.
func (d *Daemon) knows(place capstan.Place) error {
	if d.Sources == nil || place.Sort != capstan.InSource {
		return nil
	}
	names := slices.Concat(d.Sources, slices.Collect(maps.Keys(d.Secondaries)), slices.Collect(maps.Keys(d.Unrelated)), slices.Collect(maps.Keys(d.Things)), slices.Collect(maps.Keys(d.Registered)))
	if slices.Contains(names, place.Source) {
		return nil
	}
	slices.Sort(names)
	return refuse(capstan.ErrMissing, 0, "no source is called %q; there are: %s", place.Source, strings.Join(slices.Compact(names), ", "))
}

// thing returns the thing of a source with an id; nil if there is none.
func (c *cache) thing(place capstan.Place, id string) object {
	for _, one := range c.all {
		if one.home == thing && one.id == id && one.isIn(place) {
			return one.object
		}
	}
	return nil
}

func (c *cache) primary() object {
	for _, one := range c.all {
		if one.home == primary {
			return one.object
		}
	}
	return nil
}

func (c *cache) get(target capstan.ObjectRef) object {
	for _, one := range c.all {
		if refOf(one.object) == target {
			return one.object
		}
	}
	return nil
}

func (c *cache) put(target capstan.ObjectRef, value any) {
	changed := asObject(value)
	for _, one := range c.all {
		if refOf(one.object) == target {
			one.object = changed
			return
		}
	}
	c.all = append(c.all, &known{home: written, object: changed})
}

func (c *cache) remove(target capstan.ObjectRef) {
	c.all = slices.DeleteFunc(c.all, func(one *known) bool { return refOf(one.object) == target })
}

// find returns the objects of a place, ordered by namespace and name.
func (c *cache) find(d *Daemon, place capstan.Place, selection capstan.Selection) []object {
	var found []object
	for _, one := range c.all {
		if one.isIn(place) && one.isSelected(d, selection) {
			found = append(found, one.object)
		}
	}
	slices.SortStableFunc(found, func(a, b object) int {
		one, other := refOf(a), refOf(b)
		return cmp.Or(cmp.Compare(one.Namespace, other.Namespace), cmp.Compare(one.Name, other.Name))
	})
	return found
}

func (c *cache) page(d *Daemon, query capstan.Query) (capstan.Page[string], error) {
	if query.From.Sort == capstan.InPrimaries && query.Where.Sort == capstan.ByRelation {
		return capstan.Page[string]{}, refuse(capstan.ErrMisplaced, 0, "primaries are not related to the primary")
	}
	selector, err := parseSelector(query.Labels)
	if err != nil {
		return capstan.Page[string]{}, err
	}
	found := slices.DeleteFunc(c.find(d, query.From, query.Where), func(one object) bool { return !selector.accepts(one) })
	from := 0
	if query.After != "" {
		if from, err = strconv.Atoi(query.After); err != nil || from < 0 || from > len(found) {
			return capstan.Page[string]{}, refuse(capstan.ErrInvalid, 0, "after: %q is no Next of a page", query.After)
		}
	}
	end := len(found)
	if query.Limit > 0 {
		end = min(end, from+query.Limit)
	}
	var page capstan.Page[string]
	for _, one := range found[from:end] {
		page.Items = append(page.Items, text(masked(one, query.Fields)))
	}
	if end < len(found) {
		page.Next = strconv.Itoa(end)
	}
	return page, nil
}

func (k *known) isIn(place capstan.Place) bool {
	switch place.Sort {
	case capstan.InKind:
		ref := refOf(k.object)
		return k.home != thing && ref.APIVersion == place.APIVersion && ref.Kind == place.Kind
	case capstan.InPrimaries:
		return k.home == primary
	default:
		return (k.home == secondary || k.home == unrelated || k.home == thing) && k.source == place.Source
	}
}

func (k *known) isSelected(d *Daemon, selection capstan.Selection) bool {
	switch selection.Sort {
	case capstan.ByNamespace:
		return refOf(k.object).Namespace == selection.Namespace
	case capstan.ByNothing:
		return true
	case capstan.ByIndex:
		return slices.Contains(d.Indexes[selection.Index][selection.Key], refOf(k.object).Name)
	default:
		return k.home == secondary || k.home == thing
	}
}
