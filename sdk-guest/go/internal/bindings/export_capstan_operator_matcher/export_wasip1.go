// Package export_capstan_operator_matcher is where the generated bindings find the function that they export.
package export_capstan_operator_matcher

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_types"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Match compares a dependent with its desired state. Set by package capstan before the daemon calls it.
var Match func(name, actual, desired, primary string) witTypes.Result[capstan_operator_types.MatchResult, string]
