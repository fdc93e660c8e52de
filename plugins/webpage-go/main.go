// Command webpage-go decides what a WebPage needs in the cluster, and what its status says.
package main

import (
	"errors"
	"strings"

	"github.com/capstan-dev/capstan/sdk-guest/go/capstan"
)

// WebPage is the custom resource, as far as it is read here.
type WebPage struct {
	capstan.Metadata `json:"metadata"`
	Spec             Spec `json:"spec"`
}

// Spec is what the page's author asks for.
type Spec struct {
	HTML string `json:"html"`
}

// Status is what the page's author is told.
type Status struct {
	AreWeGood          bool   `json:"areWeGood"`
	HTMLConfigMap      string `json:"htmlConfigMap,omitempty"`
	ErrorMessage       string `json:"errorMessage,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration"`
}

func init() {
	capstan.Reconcile(reconcile)
	capstan.HandleError(handleError)
	// The ConfigMap comes first in the workflow: if it can't be made, the last good page stays as it is.
	capstan.Desired("configmap", configMap)
	capstan.Desired("deployment", deployment)
	capstan.Desired("service", service)
	capstan.Desired("ingress", ingress)
}

func main() {}

// The workflow has run before: everything that the page needs is there.
func reconcile(run capstan.Run, page *WebPage) (capstan.Update, error) {
	run.Log().Debug("page is published", "html_config_map", page.configMap())
	return capstan.Update{Status: page.status()}, nil
}

// Only a change of the page can mend bad HTML, so it is not retried. Anything else is.
func handleError(run capstan.Run, page *WebPage, failure capstan.Failure) (*capstan.Handled, error) {
	if _, err := page.html(); err == nil {
		return nil, nil
	}
	return &capstan.Handled{Status: page.status(), Stop: true}, nil
}

func configMap(run capstan.Run, page *WebPage) (capstan.Object, error) {
	html, err := page.html()
	return page.object("v1", "ConfigMap", page.configMap(), "data", capstan.Object{"index.html": html}), err
}

func deployment(run capstan.Run, page *WebPage) (capstan.Object, error) {
	container := capstan.Object{
		"name": "nginx", "image": "nginx:1.29", "ports": []capstan.Object{{"containerPort": 80, "protocol": "TCP"}},
		"volumeMounts": []capstan.Object{{"name": "html", "mountPath": "/usr/share/nginx/html"}},
	}
	volume := capstan.Object{"name": "html", "configMap": capstan.Object{"name": page.configMap()}}
	return page.object("apps/v1", "Deployment", page.Name, "spec", capstan.Object{
		"replicas": 1, "selector": capstan.Object{"matchLabels": page.labels()}, "template": capstan.Object{
			"metadata": capstan.Object{"labels": page.labels()},
			"spec":     capstan.Object{"containers": []capstan.Object{container}, "volumes": []capstan.Object{volume}},
		},
	}), nil
}

func service(run capstan.Run, page *WebPage) (capstan.Object, error) {
	return page.object("v1", "Service", page.Name, "spec", capstan.Object{
		"selector": page.labels(), "ports": []capstan.Object{{"port": 80, "targetPort": 80, "protocol": "TCP"}},
	}), nil
}

func ingress(run capstan.Run, page *WebPage) (capstan.Object, error) {
	service := capstan.Object{"name": page.Name, "port": capstan.Object{"number": 80}}
	path := capstan.Object{"path": "/", "pathType": "Prefix", "backend": capstan.Object{"service": service}}
	return page.object("networking.k8s.io/v1", "Ingress", page.Name, "spec", capstan.Object{
		"rules": []capstan.Object{{"http": capstan.Object{"paths": []capstan.Object{path}}}},
	}), nil
}

// object returns an object of the page's, with the one field that makes it what it is.
func (p *WebPage) object(apiVersion, kind, name, field string, content capstan.Object) capstan.Object {
	return capstan.Object{
		"apiVersion": apiVersion, "kind": kind,
		"metadata": capstan.Object{"name": name, "labels": p.labels()},
		field:      content,
	}
}

func (p *WebPage) html() (string, error) {
	if html := p.Spec.HTML; strings.Contains(html, "<html") && strings.Contains(html, "</html>") {
		return html, nil
	}
	return "", errors.New("spec.html needs <html> and </html>")
}

// Follows from the page alone, so that it is written once for each change of the page.
func (p *WebPage) status() Status {
	if _, err := p.html(); err != nil {
		return Status{ErrorMessage: err.Error(), ObservedGeneration: p.Generation}
	}
	return Status{AreWeGood: true, HTMLConfigMap: p.configMap(), ObservedGeneration: p.Generation}
}

func (p *WebPage) configMap() string { return p.Name + "-html" }

func (p *WebPage) labels() map[string]string { return map[string]string{"app": p.Name} }
