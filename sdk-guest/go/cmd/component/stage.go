// Makes the parts of a component.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/capstan-dev/capstan/sdk-guest/go/adapter"
	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
	"github.com/capstan-dev/capstan/sdk-guest/go/internal/wit"
)

// The parts of a component, in the folder where they are staged.
const (
	// Core is the compiled program.
	Core = "core.wasm"
	// Adapter answers what Go asks of its system.
	Adapter = "adapter.wat"
	// WIT is a folder with the worlds "component" and "adapter".
	WIT = "wit"
)

// patience is how long a program may take to register its functions.
const patience = 10 * time.Second

// Stage puts the parts of a package's component into a folder.
func Stage(pkg, folder string) error {
	registered, err := described(pkg)
	if err != nil {
		return err
	}
	world, err := World(registered, wit.Contract)
	if err != nil {
		return fmt.Errorf("%s %w", pkg, err)
	}
	deps := filepath.Join(folder, WIT, "deps")
	if err := os.MkdirAll(deps, 0o777); err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(folder, Adapter):          adapter.Module,
		filepath.Join(folder, WIT, "world.wit"): []byte(world),
		filepath.Join(deps, "adapter.wit"):      adapter.World,
		filepath.Join(deps, "contract.wit"):     wit.Contract,
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o666); err != nil {
			return err
		}
	}
	return compile(pkg, filepath.Join(folder, Core))
}

// World returns the worlds of a component that exports what is registered, and describes it, and of its adapter.
func World(registered []capstan.Registration, contract []byte) (string, error) {
	version := regexp.MustCompile(`package capstan:operator@([^;]+);`).FindSubmatch(contract)
	if version == nil {
		return "", errors.New("has a contract without a version")
	}
	var exports []string
	for _, one := range registered {
		export := fmt.Sprintf("  export capstan:operator/%s@%s;\n", one.Interface, version[1])
		if !slices.Contains(exports, export) {
			exports = append(exports, export)
		}
	}
	if len(exports) == 0 {
		return "", errors.New("registers nothing: call capstan.Reconcile and the like in an init function")
	}
	return fmt.Sprintf(`package capstan:author;

world component {
  include capstan:operator/imports@%[1]s;
%[2]s  export capstan:operator/description@%[1]s;
}

world adapter {
  include capstan:go-adapter/adapter;
}
`, version[1], strings.Join(exports, "")), nil
}

// described returns what a package's program registers: it is compiled for this machine and run.
func described(pkg string) ([]capstan.Registration, error) {
	folder, err := os.MkdirTemp("", "describe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	program, description := filepath.Join(folder, "program"), filepath.Join(folder, "description")
	// Empty means those of this machine, whatever the environment says.
	if err := build(pkg, program, []string{"GOOS=", "GOARCH="}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	run := exec.CommandContext(ctx, program)
	run.Env = append(os.Environ(), "CAPSTAN_DESCRIBE="+description)
	said, err := run.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s has not ended after %s: its main function should be empty", pkg, patience)
	case err != nil:
		return nil, fmt.Errorf("%s fails at its start: %w\n%s", pkg, err, bytes.TrimSpace(said))
	}
	lines, err := os.ReadFile(description)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var registered []capstan.Registration
	for line := range bytes.Lines(lines) {
		var one capstan.Registration
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("the description of %s: %w", pkg, err)
		}
		registered = append(registered, one)
	}
	return registered, nil
}

// compile compiles a package to a core module.
func compile(pkg, output string) error {
	environment := []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}
	return build(pkg, output, environment, "-buildmode=c-shared", "-ldflags=-s -w")
}

// build runs `go build`. Paths of this machine and the state of its repository stay out of the result.
func build(pkg, output string, environment []string, flags ...string) error {
	arguments := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", output}, flags...)
	command := exec.Command("go", append(arguments, pkg)...)
	command.Env = append(os.Environ(), environment...)
	return show(command)
}
