// Package export_capstan_operator_resource_poller is where the generated bindings find the function that they export.
package export_capstan_operator_resource_poller

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_resource_poller"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// PollOne reads things outside of the cluster for one primary. Set by package capstan before the daemon calls it.
var PollOne func(name, primary string) witTypes.Result[capstan_operator_resource_poller.PollResult, string]
