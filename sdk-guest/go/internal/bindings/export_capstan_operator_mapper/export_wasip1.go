// Package export_capstan_operator_mapper is where the generated bindings find the function that they export.
package export_capstan_operator_mapper

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_types"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// ToPrimaries finds the primaries of a secondary. Set by package capstan before the daemon calls it.
var ToPrimaries func(name, secondary string) witTypes.Result[[]capstan_operator_types.ObjectKey, string]
