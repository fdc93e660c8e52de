// Package adapter has what turns a core module, as Go compiles it, into a component: see adapter.wat.
package adapter

import _ "embed"

var (
	// Module is the adapter in the text format of WebAssembly. It implements wasi_snapshot_preview1.
	//
	//go:embed adapter.wat
	Module []byte

	// World is the WIT of what the adapter imports, beside the contract.
	//
	//go:embed adapter.wit
	World []byte
)
