// Package export_capstan_operator_inbound is where the generated bindings find the function that they export.
package export_capstan_operator_inbound

import (
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_inbound"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Receive understands a request from outside. Set by package capstan before the daemon calls it.
var Receive func(name string, request capstan_operator_inbound.InboundRequest) witTypes.Result[capstan_operator_inbound.InboundAnswer, string]
