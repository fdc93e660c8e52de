// Package export_capstan_operator_cleaner is where the generated bindings find the function that they export.
package export_capstan_operator_cleaner

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_cleaner"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Cleanup tidies up before a primary goes. Set by package capstan before the daemon calls it.
var Cleanup func(primary string) witTypes.Result[capstan_operator_cleaner.DeleteControl, string]
