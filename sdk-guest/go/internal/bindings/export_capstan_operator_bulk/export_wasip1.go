// Package export_capstan_operator_bulk is where the generated bindings find the function that they export.
package export_capstan_operator_bulk

import (
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// DesiredSet returns the objects that a bulk dependent should consist of. Set by package capstan before the daemon calls it.
var DesiredSet func(name, primary string) witTypes.Result[[]string, string]
