//go:build !wasip1

// JSON documents: pointers, patches and comparisons.

package capstantest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/document"
)

// object is a JSON object as encoding/json reads it.
type object = map[string]any

// text returns the JSON document of a value; a test whose values are not JSON is wrong.
func text(value any) string {
	bytes, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("a value of the test is not JSON: %v", err))
	}
	return string(bytes)
}

// asObject returns a copy of a value as a JSON object.
func asObject(value any) object {
	var copied object
	if err := document.Read(text(value), &copied); err != nil {
		panic(fmt.Sprintf("a value of the test is not a JSON object: %v", err))
	}
	return copied
}

// read reads a document, as the daemon would.
func read(text string) (any, error) {
	var value any
	if err := document.Read(text, &value); err != nil {
		return nil, refuse(capstan.ErrInvalid, 0, "%v", err)
	}
	return value, nil
}

// refOf returns what an object is called, as far as it says so.
func refOf(of object) capstan.ObjectRef {
	metadata, _ := of["metadata"].(object)
	field := func(of object, name string) string {
		value, _ := of[name].(string)
		return value
	}
	return capstan.ObjectRef{
		APIVersion: field(of, "apiVersion"),
		Kind:       field(of, "kind"),
		Namespace:  field(metadata, "namespace"),
		Name:       field(metadata, "name"),
	}
}

// withFinalizer returns the object with a finalizer, or without it.
func withFinalizer(of object, verb capstan.Verb, finalizer string) object {
	changed := asObject(of)
	metadata, _ := changed["metadata"].(object)
	known, _ := metadata["finalizers"].([]any)
	known = slices.DeleteFunc(known, func(one any) bool { return one == finalizer })
	if verb == capstan.VerbAddFinalizer {
		known = append(known, finalizer)
	}
	metadata["finalizers"] = known
	return changed
}

// compare says whether a document is as desired, without the knowledge of managed fields that the daemon has.
func compare(by capstan.Comparison, actual, desired any, ignore []string) bool {
	for _, pointer := range ignore {
		// What is not there need not be removed.
		_ = remove(&actual, pointer)
		_ = remove(&desired, pointer)
	}
	switch by {
	case capstan.ComparisonEquality:
		return document.Equal(actual, desired)
	case capstan.ComparisonStatusOnly:
		return contains(statusOf(actual), statusOf(desired))
	default:
		return contains(actual, desired)
	}
}

func statusOf(of any) any {
	fields, _ := of.(object)
	return fields["status"]
}

// contains says whether all that is desired is there; additions are tolerated.
func contains(actual, desired any) bool {
	switch desired := desired.(type) {
	case object:
		actual, ok := actual.(object)
		for key, value := range desired {
			ok = ok && contains(actual[key], value)
		}
		return ok
	case []any:
		actual, ok := actual.([]any)
		return ok && slices.EqualFunc(actual, desired, contains)
	default:
		return document.Equal(actual, desired)
	}
}

// masked returns only the fields under these JSON pointers, and what says which object it is.
func masked(of object, fields []string) any {
	if len(fields) == 0 {
		return of
	}
	kept := object{}
	always := []string{"/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"}
	for _, pointer := range slices.Concat(always, fields) {
		value, err := at(of, pointer)
		if err != nil {
			continue
		}
		place := kept
		keys := split(pointer)
		for _, key := range keys[:len(keys)-1] {
			inner, ok := place[key].(object)
			if !ok {
				inner = object{}
				place[key] = inner
			}
			place = inner
		}
		place[keys[len(keys)-1]] = value
	}
	return kept
}

// patched returns the object that a patch leads to.
func patched(verb capstan.Verb, of object, patch any) (any, error) {
	var changed any = asObject(of)
	if verb == capstan.VerbMergePatch {
		return merged(changed, patch), nil
	}
	steps, ok := patch.([]any)
	if !ok {
		return nil, errors.New("a JSON patch is a list of operations")
	}
	for _, step := range steps {
		fields, _ := step.(object)
		if err := apply(&changed, fields); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// merged applies a merge patch (RFC 7386).
func merged(of, patch any) any {
	changes, ok := patch.(object)
	if !ok {
		return patch
	}
	fields, ok := of.(object)
	if !ok {
		fields = object{}
	}
	fields = maps.Clone(fields)
	for key, value := range changes {
		if value == nil {
			delete(fields, key)
		} else {
			fields[key] = merged(fields[key], value)
		}
	}
	return fields
}

// apply applies one operation of a JSON patch (RFC 6902).
func apply(whole *any, step object) error {
	op, _ := step["op"].(string)
	path, _ := step["path"].(string)
	from, _ := step["from"].(string)
	switch op {
	case "add":
		return add(whole, path, step["value"])
	case "remove":
		return remove(whole, path)
	case "replace":
		if err := remove(whole, path); err != nil {
			return err
		}
		return add(whole, path, step["value"])
	case "move":
		value, err := at(*whole, from)
		if err == nil {
			err = remove(whole, from)
		}
		if err != nil {
			return err
		}
		return add(whole, path, value)
	case "copy":
		value, err := at(*whole, from)
		if err != nil {
			return err
		}
		return add(whole, path, value)
	case "test":
		value, err := at(*whole, path)
		if err == nil && !document.Equal(value, step["value"]) {
			err = fmt.Errorf("%s is %s, not %s", path, text(value), text(step["value"]))
		}
		return err
	default:
		return fmt.Errorf("%q is no operation of a JSON patch", op)
	}
}

// at returns the value under a JSON pointer (RFC 6901).
func at(document any, pointer string) (any, error) {
	for _, key := range split(pointer) {
		switch within := document.(type) {
		case object:
			value, ok := within[key]
			if !ok {
				return nil, fmt.Errorf("there is no %s", pointer)
			}
			document = value
		case []any:
			index, err := index(key, len(within)-1)
			if err != nil {
				return nil, fmt.Errorf("there is no %s", pointer)
			}
			document = within[index]
		default:
			return nil, fmt.Errorf("there is no %s", pointer)
		}
	}
	return document, nil
}

// add sets the value under a JSON pointer, or inserts it into a list.
func add(document *any, pointer string, value any) error {
	return change(document, pointer, func(within any, key string) (any, error) {
		switch within := within.(type) {
		case object:
			within[key] = value
			return within, nil
		case []any:
			if key == "-" {
				return append(within, value), nil
			}
			index, err := index(key, len(within))
			if err != nil {
				return nil, err
			}
			return slices.Insert(within, index, value), nil
		default:
			return nil, fmt.Errorf("there is no place for %s", pointer)
		}
	}, value)
}

// remove removes the value under a JSON pointer.
func remove(document *any, pointer string) error {
	return change(document, pointer, func(within any, key string) (any, error) {
		switch within := within.(type) {
		case object:
			if _, ok := within[key]; !ok {
				return nil, fmt.Errorf("there is no %s", pointer)
			}
			delete(within, key)
			return within, nil
		case []any:
			index, err := index(key, len(within)-1)
			if err != nil {
				return nil, err
			}
			return slices.Delete(within, index, index+1), nil
		default:
			return nil, fmt.Errorf("there is no %s", pointer)
		}
	}, nil)
}

// change replaces what the last step of a pointer is in; a pointer to the whole document replaces that.
func change(document *any, pointer string, last func(within any, key string) (any, error), whole any) error {
	keys := split(pointer)
	if len(keys) == 0 {
		*document = whole
		return nil
	}
	parent := pointer[:strings.LastIndex(pointer, "/")]
	within, err := at(*document, parent)
	if err != nil {
		return err
	}
	changed, err := last(within, keys[len(keys)-1])
	if err != nil {
		return err
	}
	if _, isList := within.([]any); !isList {
		return nil
	}
	// A list may have moved: it is put back where it was.
	return change(document, parent, func(outer any, key string) (any, error) {
		switch outer := outer.(type) {
		case object:
			outer[key] = changed
		case []any:
			index, err := index(key, len(outer)-1)
			if err != nil {
				return nil, err
			}
			outer[index] = changed
		}
		return outer, nil
	}, changed)
}

// split returns the keys of a JSON pointer.
func split(pointer string) []string {
	if pointer == "" {
		return nil
	}
	keys := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, key := range keys {
		keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
	}
	return keys
}

func index(key string, most int) (int, error) {
	index, err := strconv.Atoi(key)
	if err != nil || index < 0 || index > most {
		return 0, fmt.Errorf("%q is no place in the list", key)
	}
	return index, nil
}
