// Command component builds an operator as a WebAssembly component.
//
//	go tool component [-o FILE] [PACKAGE]
//
// It asks the program what it registers, compiles it for wasip1 and makes a component of it that exports just that. The last
// step is done by wasm-tools, found in $PATH or by $WASM_TOOLS.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "component:", err)
		}
		os.Exit(1)
	}
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("component", flag.ContinueOnError)
	output := flags.String("o", "", "the component to write; by default PACKAGE.wasm, named after the package's folder")
	stage := flags.String("stage", "", "a folder to leave the component's parts in, for another program to join, instead of running wasm-tools")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "Builds an operator as a WebAssembly component.\n\n  go tool component [-o FILE] [PACKAGE]\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() > 1 {
		return fmt.Errorf("one package at a time, not %d", flags.NArg())
	}
	pkg := "."
	if flags.NArg() == 1 {
		pkg = flags.Arg(0)
	}
	if *stage != "" {
		return Stage(pkg, *stage)
	}
	if *output == "" {
		folder, err := filepath.Abs(pkg)
		if err != nil {
			return err
		}
		*output = filepath.Base(folder) + ".wasm"
	}
	folder, err := os.MkdirTemp("", "component-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := Stage(pkg, folder); err != nil {
		return err
	}
	return join(folder, *output)
}

// join makes a component of staged parts.
func join(folder, output string) error {
	tools := os.Getenv("WASM_TOOLS")
	if tools == "" {
		tools = "wasm-tools"
	}
	if _, err := exec.LookPath(tools); err != nil {
		return fmt.Errorf("wasm-tools is needed, and there is no %s: install it (`cargo install wasm-tools` does), or set WASM_TOOLS to its path", tools)
	}
	part := func(name string) string { return filepath.Join(folder, name) }
	component := part("component.wasm")
	steps := [][]string{
		{"component", "embed", part(WIT), "--world", "component", part(Core), "-o", part("core-typed.wasm")},
		{"component", "embed", part(WIT), "--world", "adapter", part(Adapter), "-o", part("adapter.wasm")},
		{"component", "new", part("core-typed.wasm"), "--adapt", "wasi_snapshot_preview1=" + part("adapter.wasm"), "-o", component},
	}
	for _, step := range steps {
		if err := show(exec.Command(tools, step...)); err != nil {
			return err
		}
	}
	// Written in one go: a daemon may be reading the old one.
	bytes, err := os.ReadFile(component)
	if err != nil {
		return err
	}
	next := output + ".next"
	if err := os.WriteFile(next, bytes, 0o666); err != nil {
		return err
	}
	return os.Rename(next, output)
}

// show runs a program that writes to our outputs.
func show(command *exec.Cmd) error {
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", command.Args[0], err)
	}
	return nil
}
