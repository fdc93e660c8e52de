// Package export_capstan_operator_poller is where the generated bindings find the function that they export.
package export_capstan_operator_poller

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_poller"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Poll reads things outside of the cluster for all primaries. Set by package capstan before the daemon calls it.
var Poll func(name string) witTypes.Result[[]capstan_operator_poller.PrimaryResources, string]
