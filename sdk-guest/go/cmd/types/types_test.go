package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const page = `// Package page is a page.
//
// +groupName=sample.dev
// +versionName=v1
package page

import (
	"time"

	kept "github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

// Page is a page.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=pages,scope=Cluster,shortName=pg;web
// +kubebuilder:printcolumn:name="The size",type=integer,JSONPath=` + "`.spec.size`" + `,priority=1
// +kubebuilder:storageversion
// +capstan:conditions
type Page struct {
	kept.Metadata ` + "`json:\"metadata\"`" + `
	Spec Spec ` + "`json:\"spec\"`" + `
	Status struct {
		Since time.Time ` + "`json:\"since,omitzero\"`" + `
	} ` + "`json:\"status\"`" + `
}

// +kubebuilder:validation:Enum=a;b

// Sort is a sort.
type Sort string

type Common struct {
	Sort *Sort ` + "`json:\"sort,omitempty\"`" + `
}

// +kubebuilder:validation:XValidation:rule="self.size > 0",message="none, at all"
type Spec struct {
	Common ` + "`json:\",inline\"`" + `
	// Size is how large it is.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Size int32 ` + "`json:\"size\"`" + `
	Title string ` + "`json:\"title\"`" + ` // Title is what is shown.
	// +listType=map
	// +listMapKey=name
	Parts []Part ` + "`json:\"parts,omitempty\"`" + `
	// +kubebuilder:validation:items:MaxLength=9
	Tags map[string][]byte ` + "`json:\"tags,omitempty\"`" + `
	hidden int
	Skipped int ` + "`json:\"-\"`" + `
}

type Part struct {
	Name string ` + "`json:\"name\"`" + `
	More kept.Object ` + "`json:\"more,omitempty\"`" + `
}
`

// said returns what a source says, as JSON reads it.
func said(t *testing.T, source string) ([]object, error) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "page.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := print(&text, []string{folder}); err != nil {
		return nil, err
	}
	var found []object
	if err := json.Unmarshal(text.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	return found, nil
}

func equal(t *testing.T, actual, expected any) {
	t.Helper()
	text, _ := json.Marshal(expected)
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(actual, plain) {
		t.Errorf("\n  is       %v\n  expected %v", actual, plain)
	}
}

func TestTypesSayTheirFieldsAndMarkersTheRest(t *testing.T) {
	found, err := said(t, strings.Replace(page, "\t// +kubebuilder:validation:items:MaxLength=9\n", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	schema := found[0]["schema"].(object)
	delete(found[0], "schema")
	equal(t, found[0], object{
		"apiVersion": "sample.dev/v1", "kind": "Page", "plural": "pages", "scope": "Cluster", "shortNames": []string{"pg", "web"},
		"columns":    []any{object{"name": "The size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}},
		"conditions": true, "storage": true,
	})
	equal(t, schema["required"], []string{"spec", "status"})
	types := schema["$defs"].(object)
	equal(t, types["Sort"], object{"type": "string", "description": "Sort is a sort.", "enum": []string{"a", "b"}})
	spec := types["Spec"].(object)
	equal(t, spec["allOf"], []any{object{"$ref": "#/$defs/Common"}})
	equal(t, spec["required"], []string{"title"})
	equal(t, spec["x-kubernetes-validations"], []any{object{"rule": "self.size > 0", "message": "none, at all"}})
	equal(t, spec["properties"], object{
		"size":  object{"type": "integer", "format": "int32", "description": "Size is how large it is.", "default": 1, "minimum": 0},
		"title": object{"type": "string", "description": "Title is what is shown."},
		"parts": object{"type": "array", "items": object{"$ref": "#/$defs/Part"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"name"}},
		"tags":  object{"type": "object", "additionalProperties": object{"type": "string", "format": "byte"}},
	})
}

func TestWhatIsWrongIsToldWithItsPlace(t *testing.T) {
	for change, expected := range map[string]string{
		"":                                   "page.go:48:2: +kubebuilder:validation:items:MaxLength is for a list",
		"validation:Minimum→validation:Min":  "there is no marker +kubebuilder:validation:Min; expected one as in controller-gen",
		"Parts []Part→Parts []Parts":         "page.go:47:10: there is no type Parts",
		"Size int32→Size func()":             "there is no schema of a type such as this",
		"// +groupName=sample.dev→//":        "no file says the group",
		"object:root=true→object:root=false": "there is no custom resource in",
	} {
		before, after, _ := strings.Cut(change, "→")
		source := page
		if before != "" {
			source = strings.Replace(source, before, after, 1)
		}
		_, err := said(t, source)
		if err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s: %v; expected %s", change, err, expected)
		}
	}
}
