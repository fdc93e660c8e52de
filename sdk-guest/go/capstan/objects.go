// How objects become JSON and back.

package capstan

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/capstan-dev/capstan/sdk-guest/go/internal/document"
)

// Object is a JSON object without a type of its own: short to write, and read by its keys.
//
//	capstan.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": capstan.Object{"name": "hello"}}
//
// Numbers in it are of the type [json.Number], as those of any other value without a type of its own: they keep all their digits, and
// Int64 or Float64 read them.
//
//	replicas, err := object["spec"].(capstan.Object)["replicas"].(json.Number).Int64()
//
// Wherever this package takes or returns an object, any type does that encoding/json writes and reads: this one, a struct
// with json tags, or one of k8s.io/api.
type Object = map[string]any

// Metadata is the metadata of a Kubernetes object, as far as a reconciler usually needs it. Embedded, its fields are the
// object's own:
//
//	type WebPage struct {
//		capstan.Metadata `json:"metadata"`
//		Spec             Spec `json:"spec"`
//	}
type Metadata struct {
	// Name is the object's name.
	Name string `json:"name,omitempty"`
	// Namespace is empty for a cluster-scoped object.
	Namespace string `json:"namespace,omitempty"`
	// Labels are for selectors.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are for everybody else.
	Annotations map[string]string `json:"annotations,omitempty"`
	// UID is the id that no other object ever has.
	UID string `json:"uid,omitempty"`
	// Generation grows with each change of the spec.
	Generation int64 `json:"generation,omitempty"`
	// ResourceVersion changes with each write.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// CreationTimestamp says when the object was made, in RFC 3339.
	CreationTimestamp string `json:"creationTimestamp,omitempty"`
	// DeletionTimestamp says when its deletion was asked for, in RFC 3339.
	DeletionTimestamp string `json:"deletionTimestamp,omitempty"`
	// Finalizers say who has to tidy up before it goes.
	Finalizers []string `json:"finalizers,omitempty"`
}

// ObjectRef names an object of any kind.
type ObjectRef struct {
	// APIVersion is the group and version: "v1", "apps/v1".
	APIVersion string
	// Kind is the kind in singular.
	Kind string
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
}

// RefOf returns the reference to an object that has apiVersion, kind and metadata.
func RefOf(object any) (ObjectRef, error) {
	text, err := encode(object)
	if err != nil {
		return ObjectRef{}, err
	}
	named, err := decode[struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   Metadata `json:"metadata"`
	}](text)
	if err != nil {
		return ObjectRef{}, err
	}
	ref := ObjectRef{named.APIVersion, named.Kind, named.Metadata.Namespace, named.Metadata.Name}
	if ref.APIVersion == "" || ref.Kind == "" || ref.Name == "" {
		return ObjectRef{}, fmt.Errorf("an object needs apiVersion, kind and metadata.name: %s", shortened(text))
	}
	return ref, nil
}

// encode returns the JSON document of a value, with HTML in it as it is.
func encode(value any) (string, error) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	// What a json.RawMessage has in it, the encoder takes over as it is.
	return inUTF8(strings.TrimSuffix(text.String(), "\n")), err
}

// decode reads a JSON document as a T; the error names the type.
func decode[T any](text string) (T, error) {
	var value T
	if err := document.Read(text, &value); err != nil {
		return value, fmt.Errorf("not a valid %s: %w", typeName(reflect.TypeFor[T]()), err)
	}
	return value, nil
}

// decodeIf reads a JSON document that may not be there.
func decodeIf[T any](text *string) (*T, error) {
	if text == nil {
		return nil, nil
	}
	value, err := decode[T](*text)
	if err != nil {
		return nil, err
	}
	return &value, nil
}

// typeName returns a type's name without its package.
func typeName(of reflect.Type) string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Name() != "" {
		return of.Name()
	}
	return "object"
}

// withField returns a JSON object with one field set, at the given path.
func withField(object string, value any, path ...string) (string, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(object), &fields); err != nil || fields == nil {
		return "", fmt.Errorf("not an object: %s", shortened(object))
	}
	text, err := encode(value)
	if err != nil {
		return "", err
	}
	if len(path) > 1 {
		inner, ok := fields[path[0]]
		if !ok || string(inner) == "null" {
			inner = json.RawMessage("{}")
		}
		if text, err = withField(string(inner), value, path[1:]...); err != nil {
			return "", err
		}
	}
	fields[path[0]] = json.RawMessage(text)
	return encode(fields)
}

func shortened(text string) string {
	if len(text) <= 80 {
		return text
	}
	end := 80
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
