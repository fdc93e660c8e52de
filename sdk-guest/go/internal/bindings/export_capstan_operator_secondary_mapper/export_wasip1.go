// Package export_capstan_operator_secondary_mapper is where the generated bindings find the function that they export.
package export_capstan_operator_secondary_mapper

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_types"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// ToSecondaries finds the secondaries of a primary. Set by package capstan before the daemon calls it.
var ToSecondaries func(name, primary string) witTypes.Result[[]capstan_operator_types.ObjectKey, string]
