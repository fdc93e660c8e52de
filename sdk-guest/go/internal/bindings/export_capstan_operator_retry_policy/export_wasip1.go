// Package export_capstan_operator_retry_policy is where the generated bindings find the function that they export.
package export_capstan_operator_retry_policy

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_retry_policy"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// DecideRetry decides when a failed run is retried. Set by package capstan before the daemon calls it.
var DecideRetry func(primary string, failed capstan_operator_retry_policy.FailedRun) witTypes.Result[capstan_operator_retry_policy.NextRetry, string]
