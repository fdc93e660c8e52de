"""Decides what a WebPage needs in the cluster, and what its status says."""

from capstan import Error, Handled, Object, Update, debug, desired, handle_error, reconcile


@reconcile
def publish(page: Object) -> Update:
    """The workflow has run before: everything that the page needs is there."""
    debug("page is published", html_config_map=config_map(page))
    return Update(status=status(page))


@handle_error
def tell(page: Object) -> Handled | None:
    """Only a change of the page can mend bad HTML, so it is not retried. Anything else is."""
    return Handled(status=status(page), stop=True) if problem(page) else None


# The ConfigMap comes first in the workflow: if it can't be made, the last good page stays as it is.
@desired
def configmap(page: Object) -> Object:
    if error := problem(page):
        raise Error(error)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": config_map(page), "labels": labels(page)},
        "data": {"index.html": page["spec"]["html"]},
    }


@desired
def deployment(page: Object) -> Object:
    container = {
        "name": "nginx",
        "image": "nginx:1.29",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "volumeMounts": [{"name": "html", "mountPath": "/usr/share/nginx/html"}],
    }
    volume = {"name": "html", "configMap": {"name": config_map(page)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": page["metadata"]["name"], "labels": labels(page)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels(page)},
            "template": {
                "metadata": {"labels": labels(page)},
                "spec": {"containers": [container], "volumes": [volume]},
            },
        },
    }


@desired
def service(page: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": page["metadata"]["name"], "labels": labels(page)},
        "spec": {"selector": labels(page), "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]},
    }


@desired
def ingress(page: Object) -> Object:
    name = page["metadata"]["name"]
    backend = {"service": {"name": name, "port": {"number": 80}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "labels": labels(page)},
        "spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]},
    }


def problem(page: Object) -> str | None:
    """Returns what is wrong with the page."""
    html = page["spec"]["html"]
    return None if "<html" in html and "</html>" in html else "spec.html needs <html> and </html>"


def status(page: Object) -> Object:
    """Follows from the page alone, so that it is written once for each change of the page."""
    at = page["metadata"].get("generation")
    if error := problem(page):
        return {"areWeGood": False, "errorMessage": error, "observedGeneration": at}
    return {"areWeGood": True, "htmlConfigMap": config_map(page), "observedGeneration": at}


def config_map(page: Object) -> str:
    return f"{page['metadata']['name']}-html"


def labels(page: Object) -> dict[str, str]:
    return {"app": page["metadata"]["name"]}
