// Package export_capstan_operator_description is where the generated bindings find the function that they export.
package export_capstan_operator_description

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_description"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Describe returns which names the component answers to. Set by package capstan before the daemon calls it.
var Describe func() witTypes.Result[[]capstan_operator_description.KnownNames, string]
