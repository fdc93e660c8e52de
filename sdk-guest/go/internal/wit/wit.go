// Package wit has the contract between daemon and component, and below it what the generated bindings are made of.
package wit

import _ "embed"

// Contract is the text of the package capstan:operator: all files of the repository's wit/ in one.
//
//go:embed contract.wit
var Contract []byte
