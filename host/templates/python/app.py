"""Decides what a {{kind}} needs in the cluster, and what its status says."""

from capstan import Object, Problem, Update, desired, reconcile, validate


@validate
def check(primary: Object) -> "Problem | None":
    """What the schema in crd.yaml does not check is checked here, before anything is written."""
    if "{name}" not in primary["spec"]["greeting"]:
        return Problem("{name} is missing", "spec.greeting")
    return None


@desired
def configmap(primary: Object) -> Object:
    """The ConfigMap that should exist. This comes before `reconcile`."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": primary["metadata"]["name"]},
        "data": {"text": text(primary["spec"])},
    }


@reconcile
def publish(primary: Object) -> Update:
    """The ConfigMap is there by now: the status says what it has."""
    return Update(status={"text": text(primary["spec"])})


def text(spec: Object) -> str:
    return spec["greeting"].replace("{name}", spec["name"])
