// Package export_capstan_operator_external is where the generated bindings find the functions that they export.
package export_capstan_operator_external

import (
	witExternal "github.com/capstan-dev/capstan/sdk-guest/go/internal/bindings/capstan_operator_external"
	witTypes "github.com/capstan-dev/capstan/sdk-guest/go/internal/wit/types"
)

// Set by package capstan before the daemon calls them.
var (
	// Create creates a thing outside of the cluster.
	Create func(name, desired, primary string) witTypes.Result[witExternal.Created, string]
	// Update makes a thing outside of the cluster as desired.
	Update func(name, actual, desired, primary string) witTypes.Result[string, string]
	// Remove removes a thing outside of the cluster.
	Remove func(name, actual, primary string) witTypes.Result[witTypes.Unit, string]
)
