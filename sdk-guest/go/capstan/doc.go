// Package capstan is for writing a Kubernetes operator as a WebAssembly component for Capstan.
//
// An operator registers functions over its own types, and that is all of it:
//
//	package main
//
//	import (
//		"errors"
//		"strings"
//
//		"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
//	)
//
//	type WebPage struct {
//		capstan.Metadata `json:"metadata"`
//		Spec             struct{ HTML string } `json:"spec"`
//	}
//
//	type Status struct {
//		AreWeGood bool `json:"areWeGood"`
//	}
//
//	func init() {
//		capstan.Reconcile(reconcile)
//		capstan.Desired("configmap", configMap)
//	}
//
//	func main() {}
//
//	func reconcile(run capstan.Run, page *WebPage) (capstan.Update, error) {
//		if !strings.Contains(page.Spec.HTML, "<html") {
//			return capstan.Update{}, errors.New("spec.html is not an HTML page")
//		}
//		run.Log().Info("reconciled", "page", page.Name)
//		return capstan.Update{Status: Status{AreWeGood: true}}, nil
//	}
//
//	func configMap(run capstan.Run, page *WebPage) (capstan.Object, error) {
//		return capstan.Object{
//			"apiVersion": "v1", "kind": "ConfigMap",
//			"metadata": capstan.Object{"name": page.Name},
//			"data":     capstan.Object{"index.html": page.Spec.HTML},
//		}, nil
//	}
//
// A function may ask the daemon by way of its [Run]: for objects of the caches ([Run.Secondary], [Run.List]), for writes
// beyond what the workflow does ([Run.Apply] and the like), for values that outlive the call ([Run.Memo]), and more. What it
// returns as an error reaches the status, the log and the metrics; a panic does so too, with its stack in the log.
//
// The functions are ordinary functions: package capstantest stands in for the daemon in their unit tests.
package capstan
