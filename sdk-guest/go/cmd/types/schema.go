// Which JSON schema says what types do.

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"reflect"
	"slices"
	"strings"
)

type object = map[string]any

// root marks the type of a custom resource.
const root = "kubebuilder:object:root"

// builtin are the schemas of Go's own types.
var builtin = map[string]object{
	"string": {"type": "string"}, "bool": {"type": "boolean"}, "error": {"type": "string"}, "any": {},
	"int": {"type": "integer", "format": "int64"}, "int64": {"type": "integer", "format": "int64"},
	"int8": {"type": "integer", "format": "int32"}, "int16": {"type": "integer", "format": "int32"}, "int32": {"type": "integer", "format": "int32"},
	"rune": {"type": "integer", "format": "int32"}, "byte": {"type": "integer", "minimum": 0, "maximum": 255},
	"uint8": {"type": "integer", "minimum": 0, "maximum": 255}, "uint16": {"type": "integer", "format": "int32", "minimum": 0},
	"uint32": {"type": "integer", "format": "int64", "minimum": 0}, "uint": {"type": "integer", "format": "int64", "minimum": 0},
	"uint64": {"type": "integer", "format": "int64", "minimum": 0}, "float32": {"type": "number", "format": "float"},
	"float64": {"type": "number", "format": "double"},
}

const (
	sdk  = "github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	meta = "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outside are the schemas of types whose JSON is something else than what they are made of; of metadata, there is none.
var outside = map[string]object{
	"time.Time": {"type": "string", "format": "date-time"}, "time.Duration": {"type": "integer", "format": "int64"},
	"encoding/json.RawMessage": {}, sdk + ".Object": {"type": "object"}, sdk + ".Metadata": nil,
	meta + ".Time": {"type": "string", "format": "date-time"}, meta + ".MicroTime": {"type": "string", "format": "date-time"},
	meta + ".Duration": {"type": "string"}, meta + ".ObjectMeta": nil, meta + ".TypeMeta": nil, meta + ".FieldsV1": {"type": "object"},
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                 {"type": []string{"integer", "string"}},
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":               {"type": []string{"integer", "string"}},
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                  {"type": "object"},
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON": {},
}

// schemas are those of the types that others refer to.
type schemas struct {
	source *source
	known  map[string]any
}

// resources returns what a package says of its custom resources.
func resources(folder string) ([]object, error) {
	source := &source{token.NewFileSet(), folder, map[*ast.File][]string{}, map[string]*pkg{}}
	first, err := source.read(folder, "")
	if err != nil {
		return nil, err
	}
	var found []object
	for _, name := range first.names {
		of := first.types[name]
		if !slices.ContainsFunc(of.markers, func(one marker) bool { return one.name == root && one.value != "false" }) {
			continue
		}
		said, err := facts(first, of)
		if err != nil {
			return nil, err
		}
		all := &schemas{source, map[string]any{}}
		schema, err := all.declared(of)
		if err != nil {
			return nil, err
		}
		schema["$defs"] = all.known
		said["schema"] = schema
		found = append(found, said)
	}
	return found, nil
}

// facts returns what the markers of a type and its package say of the resource.
func facts(of *pkg, resource *typed) (object, error) {
	group, version := "", "v1alpha1"
	for _, one := range of.markers {
		switch one.name {
		case "groupName":
			group = one.value
		case "versionName":
			version = one.value
		}
	}
	if group == "" {
		return nil, errors.New("no file says the group above its package: expected // +groupName=example.com, and // +versionName=v1alpha1")
	}
	said := object{"apiVersion": group + "/" + version, "kind": resource.spec.Name.Name}
	var columns, selectable []any
	for _, one := range resource.markers {
		given := one.arguments
		switch one.name {
		case "kubebuilder:resource":
			for argument, field := range map[string]string{"path": "plural", "scope": "scope"} {
				if value := given[argument]; value != "" {
					said[field] = value
				}
			}
			for argument, field := range map[string]string{"shortName": "shortNames", "categories": "categories"} {
				if value := given[argument]; value != "" {
					said[field] = list(value)
				}
			}
		case "kubebuilder:printcolumn":
			column := object{"name": given["name"], "jsonPath": given["JSONPath"]}
			for _, field := range []string{"type", "description", "format"} {
				if value := given[field]; value != "" {
					column[field] = value
				}
			}
			if value := given["priority"]; value != "" {
				column["priority"] = anything(value)
			}
			columns = append(columns, column)
		case "kubebuilder:subresource:scale":
			said["scale"] = scale(given)
		case "kubebuilder:selectablefield":
			selectable = append(selectable, given["JSONPath"])
		case "kubebuilder:storageversion":
			said["storage"] = true
		case "capstan:conditions":
			said["conditions"] = true
		}
	}
	if columns != nil {
		said["columns"] = columns
	}
	if selectable != nil {
		said["selectableFields"] = selectable
	}
	return said, nil
}

func scale(given map[string]string) object {
	found := object{}
	for argument, field := range map[string]string{"specpath": "specReplicasPath", "statuspath": "statusReplicasPath", "selectorpath": "labelSelectorPath"} {
		if value := given[argument]; value != "" {
			found[field] = value
		}
	}
	return found
}

// declared returns the schema of a type that has a name.
func (s *schemas) declared(of *typed) (object, error) {
	if of.spec.TypeParams != nil {
		return nil, s.wrong(of, of.spec, "a type with parameters has no schema of its own; expected a plain one")
	}
	schema, err := s.of(of, of.spec.Type)
	if err != nil {
		return nil, err
	}
	if of.doc != "" {
		schema["description"] = of.doc
	}
	_, err = checked(schema, of.markers)
	return schema, err
}

// of returns the schema of a type as it is written at a place.
func (s *schemas) of(at *typed, written ast.Expr) (object, error) {
	switch written := written.(type) {
	case *ast.StarExpr:
		return s.of(at, written.X)
	case *ast.ParenExpr:
		return s.of(at, written.X)
	case *ast.InterfaceType:
		return object{}, nil
	case *ast.StructType:
		return s.fields(at, written)
	case *ast.ArrayType:
		if element, is := written.Elt.(*ast.Ident); is && (element.Name == "byte" || element.Name == "uint8") {
			return object{"type": "string", "format": "byte"}, nil
		}
		items, err := s.of(at, written.Elt)
		return object{"type": "array", "items": items}, err
	case *ast.MapType:
		values, err := s.of(at, written.Value)
		return object{"type": "object", "additionalProperties": values}, err
	case *ast.Ident, *ast.SelectorExpr:
		return s.named(at, written)
	}
	return nil, s.wrong(at, written, "there is no schema of a type such as this; expected one as in JSON")
}

func (s *schemas) named(at *typed, written ast.Expr) (object, error) {
	found, key, err := s.source.named(at, written)
	if err != nil {
		return nil, s.wrong(at, written, err.Error())
	}
	if schema, known := outside[key]; known {
		return copied(schema), nil
	}
	if found == nil {
		if ident, is := written.(*ast.Ident); is && builtin[ident.Name] != nil {
			return copied(builtin[ident.Name]), nil
		}
		return nil, s.wrong(at, written, fmt.Sprintf("there is no type %s; expected one that is declared, or as in JSON", strings.TrimPrefix(key, ".")))
	}
	name := strings.TrimPrefix(strings.NewReplacer("/", ".", "~", ".").Replace(key), ".")
	if s.known[name] == nil {
		s.known[name] = object{}
		schema, err := s.declared(found)
		if err != nil {
			return nil, err
		}
		s.known[name] = schema
	}
	return object{"$ref": "#/$defs/" + name}, nil
}

// fields returns the schema of a struct.
func (s *schemas) fields(at *typed, written *ast.StructType) (object, error) {
	properties, required := object{}, []any{}
	schema := object{"type": "object", "properties": properties}
	for _, field := range written.Fields.List {
		tag := ""
		if field.Tag != nil {
			tag = reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		}
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" {
			continue
		}
		if is, err := s.isMetadata(at, field.Type); is || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		value, err := s.of(at, field.Type)
		if err != nil {
			return nil, err
		}
		if len(field.Names) == 0 && name == "" {
			// What is embedded has its fields here.
			schema["allOf"] = append(anyOf(schema["allOf"]), value)
			continue
		}
		doc := field.Doc
		if doc == nil {
			doc = field.Comment
		}
		_, markers, err := s.source.said(at.file, field.Doc, field.Pos())
		if err != nil {
			return nil, err
		}
		if text := text(doc); text != "" {
			value["description"] = text
		}
		optional, err := checked(value, markers)
		if err != nil {
			return nil, err
		}
		for _, ident := range slices.Concat(field.Names, embedded(field)) {
			key := name
			if key == "" {
				key = ident.Name
			}
			if !ident.IsExported() {
				continue
			}
			properties[key] = value
			if !optional && !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				required = append(required, key)
			}
		}
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema, nil
}

// embedded returns the name of a field that is embedded under one of its own.
func embedded(field *ast.Field) []*ast.Ident {
	if len(field.Names) > 0 {
		return nil
	}
	return []*ast.Ident{ast.NewIdent("Embedded")}
}

func (s *schemas) isMetadata(at *typed, written ast.Expr) (bool, error) {
	selector, is := written.(*ast.SelectorExpr)
	if !is {
		return false, nil
	}
	path, err := imported(at.file, selector.X)
	if err != nil {
		return false, s.wrong(at, written, err.Error())
	}
	schema, known := outside[path+"."+selector.Sel.Name]
	return known && schema == nil, nil
}

func (s *schemas) wrong(_ *typed, place ast.Node, message string) error {
	return fmt.Errorf("%s: %s", s.source.files.Position(place.Pos()), message)
}

func anyOf(known any) []any {
	list, _ := known.([]any)
	return list
}

func copied(schema object) object {
	found := object{}
	for key, value := range schema {
		found[key] = value
	}
	return found
}
