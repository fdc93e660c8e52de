"""Decides what a {{kind}} needs in the cluster, and what its status says."""

from capstan import Error, Object, Update, desired, reconcile


@desired
def configmap(primary: Object) -> Object:
    """The ConfigMap that should exist. This comes before `reconcile`; if it raises, nothing is written."""
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
    """What the schema in crd.yaml does not check is checked here."""
    if "{name}" not in spec["greeting"]:
        raise Error("spec.greeting needs {name}")
    return spec["greeting"].replace("{name}", spec["name"])
