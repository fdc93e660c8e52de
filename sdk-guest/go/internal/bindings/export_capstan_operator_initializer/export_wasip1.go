// Package export_capstan_operator_initializer is where the generated bindings find the function that they export.
package export_capstan_operator_initializer

import witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"

// Initialize prepares a run. Set by package capstan before the daemon calls it.
var Initialize func(primary string) witTypes.Result[witTypes.Unit, string]
