// Package export_capstan_operator_dependent is where the generated bindings find the function that they export.
package export_capstan_operator_dependent

import (
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Desired returns what a dependent should be. Set by package capstan before the daemon calls it.
var Desired func(name, primary string) witTypes.Result[string, string]
