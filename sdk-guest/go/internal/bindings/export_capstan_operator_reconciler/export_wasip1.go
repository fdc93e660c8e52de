// Package export_capstan_operator_reconciler is where the generated bindings find the function that they export.
package export_capstan_operator_reconciler

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_reconciler"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Reconcile brings the world in line with a primary. Set by package capstan before the daemon calls it.
var Reconcile func(primary string) witTypes.Result[capstan_operator_reconciler.UpdateControl, string]
