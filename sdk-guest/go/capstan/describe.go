//go:build !wasip1

// Tells the build what a program registers.

package capstan

import (
	"encoding/json"
	"fmt"
	"os"
)

// describe tells the build what the component is to export: the build runs the program natively, and reads the file that
// this variable names.
func describe(added entry) {
	name := os.Getenv("CAPSTAN_DESCRIBE")
	if name == "" {
		return
	}
	line, err := json.Marshal(Registration{added.kind.export, added.controller, added.name})
	if err == nil {
		err = appendLine(name, line)
	}
	if err != nil {
		panic(fmt.Sprintf("describe the component: %v", err))
	}
}

func appendLine(name string, line []byte) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		return err
	}
	return file.Close()
}
