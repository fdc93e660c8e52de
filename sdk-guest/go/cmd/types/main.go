// Command types prints what the types of a package say of a custom resource, as JSON, for `capstan crd`, which makes the CRD of it. It reads the
// markers of controller-gen:
//
//	// +groupName=example.com
//	// +versionName=v1alpha1
//	package main
//
//	// Greeting is a greeting.
//	//
//	// +kubebuilder:object:root=true
//	// +kubebuilder:printcolumn:name=Text,JSONPath=.status.text
//	// +capstan:conditions
//	type Greeting struct {
//		capstan.Metadata `json:"metadata"`
//		Spec             Spec   `json:"spec"`
//		Status           Status `json:"status,omitempty"`
//	}
//
//	// Spec is what is asked for.
//	type Spec struct {
//		// Name is who is greeted.
//		// +kubebuilder:validation:MinLength=1
//		Name string `json:"name"`
//	}
//
// Unlike controller-gen, it takes a type whose metadata is a capstan.Metadata, and needs nothing of k8s.io. `+capstan:conditions` says that the
// status has conditions although its type does not, because the daemon keeps them (statusConditions in the manifest).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Print what types say, for `capstan crd`.\n\nUsage: go tool types [FOLDER ...]\n\n"+
			"A folder is that of a package with a type marked by +kubebuilder:object:root=true; without one it is this one.")
	}
	flag.Parse()
	folders := flag.Args()
	if len(folders) == 0 {
		folders = []string{"."}
	}
	if err := print(os.Stdout, folders); err != nil {
		fmt.Fprintln(os.Stderr, "types:", err)
		os.Exit(1)
	}
}

// print writes what the types of packages say.
func print(out io.Writer, folders []string) error {
	found := []object{}
	for _, folder := range folders {
		said, err := resources(folder)
		if err != nil {
			return err
		}
		found = append(found, said...)
	}
	if len(found) == 0 {
		return fmt.Errorf("there is no custom resource in %v: mark its type by +kubebuilder:object:root=true", folders)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(found)
}
