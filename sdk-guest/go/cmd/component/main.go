// Command component builds an operator as a WebAssembly component.
//
//	go tool component [-o FILE] [PACKAGE]
//
// It asks the program what it registers, compiles it for wasip1 and makes a component of it that exports just that. The last
// step is done by Capstan's program, found in $PATH or by $CAPSTAN.
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
	if *output == "" {
		folder, err := filepath.Abs(pkg)
		if err != nil {
			return err
		}
		*output = filepath.Base(folder) + ".wasm"
	}
	// Before anything is compiled, which takes a while.
	capstan, err := program()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "component-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := Stage(pkg, folder); err != nil {
		return err
	}
	return show(exec.Command(capstan, "component", folder, "--output", *output))
}

// program returns Capstan's program, which makes a component of staged parts.
func program() (string, error) {
	name := os.Getenv("CAPSTAN")
	if name == "" {
		name = "capstan"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("Capstan's program makes the component, and there is no %s: put capstan into $PATH, or set CAPSTAN to its path", name)
	}
	return path, nil
}

// show runs a program that writes to our outputs.
func show(command *exec.Cmd) error {
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", command.Args[0], err)
	}
	return nil
}
