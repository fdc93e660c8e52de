// Package export_capstan_operator_condition is where the generated bindings find the function that they export.
package export_capstan_operator_condition

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_condition"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// IsMet decides a condition. Set by package capstan before the daemon calls it.
var IsMet func(name, dependent, primary string) witTypes.Result[capstan_operator_condition.ConditionResult, string]
