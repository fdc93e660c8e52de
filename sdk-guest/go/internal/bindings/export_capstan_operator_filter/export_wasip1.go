// Package export_capstan_operator_filter is where the generated bindings find the function that they export.
package export_capstan_operator_filter

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_filter"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Accepts says whether a change matters. Set by package capstan before the daemon calls it.
var Accepts func(name string, change capstan_operator_filter.Change) witTypes.Result[bool, string]
