// Package export_capstan_operator_validator is where the generated bindings find the function that they export.
package export_capstan_operator_validator

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_validator"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Validate says whether a primary is one that the component can work with. Set by package capstan before the daemon calls it.
var Validate func(primary string, old witTypes.Option[string]) witTypes.Result[[]capstan_operator_validator.Problem, string]
