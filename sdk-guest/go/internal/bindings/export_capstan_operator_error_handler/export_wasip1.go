// Package export_capstan_operator_error_handler is where the generated bindings find the function that they export.
package export_capstan_operator_error_handler

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_error_handler"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// HandleError decides what a failed run leaves behind. Set by package capstan before the daemon calls it.
var HandleError func(primary string, failed capstan_operator_error_handler.FailureInfo) witTypes.Result[capstan_operator_error_handler.ErrorControl, string]
