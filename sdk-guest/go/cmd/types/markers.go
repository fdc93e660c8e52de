// What markers say, as controller-gen reads them: `+kubebuilder:validation:MaxLength=63`, `+kubebuilder:printcolumn:name=Text,JSONPath=.status.text`.

package main

import (
	"encoding/json"
	"fmt"
	"go/token"
	"strconv"
	"strings"
)

// marker is one of them.
type marker struct {
	// name is all before the arguments.
	name string
	// value is what stands behind the `=` of one with a single argument.
	value string
	// arguments are those of one with several.
	arguments map[string]string
	at        token.Position
}

// withArguments are the markers that have several arguments.
var withArguments = []string{
	"kubebuilder:printcolumn", "kubebuilder:resource", "kubebuilder:subresource:scale", "kubebuilder:selectablefield",
	"kubebuilder:validation:XValidation", "kubebuilder:validation:items:XValidation",
}

// parse reads the text behind the `+`.
func parse(text string, at token.Position) (marker, error) {
	for _, name := range withArguments {
		rest, is := strings.CutPrefix(text, name+":")
		if !is {
			continue
		}
		arguments, err := several(rest)
		if err != nil {
			return marker{}, fmt.Errorf("%s: +%s: %w", at, name, err)
		}
		return marker{name: name, arguments: arguments, at: at}, nil
	}
	name, value, _ := strings.Cut(text, "=")
	return marker{name: strings.TrimSpace(name), value: strings.TrimSpace(value), at: at}, nil
}

// several reads `name=value,name="v,alue"`.
func several(text string) (map[string]string, error) {
	found := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, "=")
		if !ok || strings.Contains(name, ",") {
			name, text, _ = strings.Cut(text, ",")
			found[name] = "true"
			continue
		}
		value, after, err := word(rest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found[strings.TrimSpace(name)] = value
		text = strings.TrimPrefix(after, ",")
	}
	return found, nil
}

// word reads a value up to a comma, or a quoted one, and returns what follows.
func word(text string) (value, rest string, err error) {
	if text == "" || !strings.ContainsAny(text[:1], "\"`'") {
		value, rest, found := strings.Cut(text, ",")
		if found {
			rest = "," + rest
		}
		return value, rest, nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", "", fmt.Errorf("%s has a quote without an end", text)
	}
	value, err = strconv.Unquote(quoted)
	return value, text[len(quoted):], err
}

// bare returns a value without its quotes.
func bare(text string) string {
	if value, err := strconv.Unquote(text); err == nil {
		return value
	}
	return text
}

// list returns `a;b;"c"`, or `{a,b}`, as a list.
func list(text string) []string {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	var found []string
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ',' }) {
		found = append(found, bare(strings.TrimSpace(one)))
	}
	return found
}

// any returns a value as JSON: a number, a bool, a text, or what is written as JSON.
func anything(text string) any {
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err == nil && !decoder.More() {
		return value
	}
	if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") && !strings.Contains(text, ":") {
		values := []any{}
		for _, one := range list(text) {
			values = append(values, anything(one))
		}
		return values
	}
	return bare(text)
}
