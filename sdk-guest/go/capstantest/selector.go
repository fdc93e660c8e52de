//go:build !wasip1

// Label selectors.

package capstantest

import (
	"slices"
	"strings"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

// selector is a label selector as kubectl writes it; all requirements are to be met.
type selector []requirement

// requirement is what a selector asks of one label.
type requirement struct {
	key    string
	values []string
	// What the requirement says of a label that is there, and of one that is not.
	there, absent func(value string, values []string) bool
}

func yes(string, []string) bool                   { return true }
func no(string, []string) bool                    { return false }
func among(value string, values []string) bool    { return slices.Contains(values, value) }
func notAmong(value string, values []string) bool { return !slices.Contains(values, value) }

func parseSelector(text string) (selector, error) {
	var requirements selector
	for rest := strings.TrimSpace(text); rest != ""; {
		end := strings.Index(rest, ",")
		// A comma inside parentheses separates values, not requirements.
		if open := strings.Index(rest, "("); open >= 0 && open < end {
			end = strings.Index(rest, ")") + 1
		}
		if end <= 0 {
			end = len(rest)
		}
		one, ok := parseRequirement(strings.TrimSpace(rest[:end]))
		if !ok {
			return nil, refuse(capstan.ErrInvalid, 0, "`%s` is no label selector", strings.TrimSpace(rest[:end]))
		}
		requirements = append(requirements, one)
		rest = strings.TrimLeft(rest[end:], ", ")
	}
	return requirements, nil
}

func parseRequirement(text string) (requirement, bool) {
	for _, form := range []struct {
		operator      string
		there, absent func(string, []string) bool
	}{
		{" notin ", notAmong, yes},
		{" in ", among, no},
		{"!=", notAmong, yes},
		{"==", among, no},
		{"=", among, no},
	} {
		key, list, ok := strings.Cut(text, form.operator)
		if !ok {
			continue
		}
		values := strings.Split(strings.Trim(strings.TrimSpace(list), "()"), ",")
		for i, value := range values {
			values[i] = strings.TrimSpace(value)
		}
		return requirement{strings.TrimSpace(key), values, form.there, form.absent}, true
	}
	if key, ok := strings.CutPrefix(text, "!"); ok {
		return requirement{strings.TrimSpace(key), nil, no, yes}, true
	}
	return requirement{text, nil, yes, no}, text != "" && !strings.ContainsAny(text, " \t()")
}

func (s selector) accepts(of object) bool {
	metadata, _ := of["metadata"].(object)
	labels, _ := metadata["labels"].(object)
	for _, one := range s {
		value, there := labels[one.key].(string)
		if there && !one.there(value, one.values) || !there && !one.absent(value, one.values) {
			return false
		}
	}
	return true
}
