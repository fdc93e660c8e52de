"""Decides what a {{kind}} needs in the cluster, and what its status says."""

from dataclasses import dataclass
from typing import Annotated

from capstan import Metadata, Object, Problem, Update, desired, reconcile, validate
from capstan.types import Column, Limits, resource

# From these types, `capstan crd` writes crd.yaml.


@dataclass
class Spec:
    """What is asked for."""

    name: Annotated[str, Limits(min_length=1, max_length=63)]
    """Who is greeted."""
    greeting: Annotated[str, Limits(max_length=256)] = "Hello, {name}!"
    """What is said, with {name} in it."""

    def text(self) -> str:
        return self.greeting.replace("{name}", self.name)


@dataclass
class Status:
    """What is told. The daemon adds the conditions."""

    text: "str | None" = None
    """What the ConfigMap says."""


READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')


@resource("{{group}}/v1alpha1"{{called}}, columns=[READY, Column("Text", ".status.text")], conditions=True)
@dataclass
class {{kind}}:
    """Somebody is greeted."""

    metadata: Metadata
    spec: Spec
    status: "Status | None" = None


@validate
def check(primary: {{kind}}) -> "Problem | None":
    """What the types can't say is checked here, before anything but the finalizer is written."""
    if "{name}" not in primary.spec.greeting:
        return Problem("{name} is missing", "spec.greeting")
    return None


@desired
def configmap(primary: {{kind}}) -> Object:
    """The ConfigMap that should exist. This comes before `reconcile`."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": primary.metadata.name},
        "data": {"text": primary.spec.text()},
    }


@reconcile
def publish(primary: {{kind}}) -> Update:
    """The ConfigMap is there by now: the status says what it has."""
    return Update(status=Status(primary.spec.text()))
