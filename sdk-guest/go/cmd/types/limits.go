// What markers say of a value: its limits, its default, whether it may be left out.

package main

import (
	"fmt"
	"slices"
	"strings"
)

const validation = "kubebuilder:validation:"

// limits are the markers with one value, by the keyword of the schema.
var limits = map[string]string{
	"Maximum": "maximum", "Minimum": "minimum", "MultipleOf": "multipleOf", "MaxLength": "maxLength", "MinLength": "minLength",
	"Pattern": "pattern", "MaxItems": "maxItems", "MinItems": "minItems", "UniqueItems": "uniqueItems", "MaxProperties": "maxProperties",
	"MinProperties": "minProperties", "Format": "format", "Type": "type",
}

// flags are those whose value may be left out.
var flags = map[string]string{
	"XPreserveUnknownFields": "x-kubernetes-preserve-unknown-fields", "XEmbeddedResource": "x-kubernetes-embedded-resource",
	"XIntOrString": "x-kubernetes-int-or-string",
}

// checked adds what markers say to a schema, and says whether the field may be left out.
func checked(schema object, markers []marker) (optional bool, err error) {
	for _, one := range markers {
		target, name := schema, one.name
		if rest, is := strings.CutPrefix(name, validation+"items:"); is {
			items, has := schema["items"].(object)
			if !has {
				return false, fmt.Errorf("%s: +%s is for a list", one.at, name)
			}
			target, name = items, validation+rest
		}
		switch {
		case slices.Contains([]string{"optional", "k8s:optional", validation + "Optional"}, name):
			optional = true
		case slices.Contains([]string{"required", "k8s:required", validation + "Required"}, name):
			optional = false
		case name == "nullable":
			target["nullable"] = true
		case name == "default" || name == "kubebuilder:default":
			target["default"], optional = anything(one.value), true
		case name == "kubebuilder:example":
			target["example"] = anything(one.value)
		case name == "kubebuilder:pruning:PreserveUnknownFields":
			target["x-kubernetes-preserve-unknown-fields"] = true
		case name == "listType" || name == "mapType":
			target["x-kubernetes-"+map[string]string{"listType": "list-type", "mapType": "map-type"}[name]] = bare(one.value)
		case name == "listMapKey":
			target["x-kubernetes-list-map-keys"] = append(anyOf(target["x-kubernetes-list-map-keys"]), bare(one.value))
		case strings.HasPrefix(name, validation):
			if err := limited(target, strings.TrimPrefix(name, validation), one); err != nil {
				return false, err
			}
		}
	}
	return optional, nil
}

// limited adds what one marker of validation says.
func limited(schema object, name string, one marker) error {
	switch name {
	case "Enum":
		values := []any{}
		for _, value := range list(one.value) {
			values = append(values, typedAs(schema, value))
		}
		schema["enum"] = values
	case "ExclusiveMaximum", "ExclusiveMinimum":
		schema["exclusive"+strings.TrimPrefix(name, "Exclusive")] = one.value == "" || one.value == "true"
	case "XValidation":
		rule := object{}
		for _, key := range []string{"rule", "message", "messageExpression", "reason", "fieldPath"} {
			if value := one.arguments[key]; value != "" {
				rule[key] = value
			}
		}
		schema["x-kubernetes-validations"] = append(anyOf(schema["x-kubernetes-validations"]), rule)
	case "Schemaless":
		clear(schema)
		schema["x-kubernetes-preserve-unknown-fields"] = true
	default:
		if keyword := flags[name]; keyword != "" {
			schema[keyword] = true
			return nil
		}
		keyword := limits[name]
		if keyword == "" {
			return fmt.Errorf("%s: there is no marker +%s%s; expected one as in controller-gen, such as +%sMaxLength=63", one.at, validation, name, validation)
		}
		schema[keyword] = anything(one.value)
		if slices.Contains([]string{"pattern", "format", "type"}, keyword) {
			schema[keyword] = bare(one.value)
		}
	}
	return nil
}

// typedAs returns a value of an enumeration: a text, unless the schema is one of numbers.
func typedAs(schema object, value string) any {
	if kind := schema["type"]; kind == "integer" || kind == "number" || kind == "boolean" {
		return anything(value)
	}
	return value
}
