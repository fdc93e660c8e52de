"""Runs workflows and dependents by hand, and says what became of the managed workflow.

The daemon calls `desired` and the like in another instance of the component; values for them go through `capstan.memo`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from capstan._daemon import daemon
from capstan._words import optional_text, text

Operation = Literal["unchanged", "created", "updated", "deleted"]
"""What can be done with an object."""

ConditionRole = Literal["activation", "reconcile-precondition", "ready-postcondition", "delete-postcondition"]
"""What a condition is for."""


@dataclass(frozen=True)
class ObjectResult:
    """What was done with an object."""

    key: str
    """Its name."""
    operation: Operation
    """What was done."""


@dataclass(frozen=True)
class ConditionOutcome:
    """What a condition said."""

    role: ConditionRole
    """What it is for."""
    met: bool
    """Whether it is met."""
    detail: Any = None
    """The detail that it gave."""


@dataclass(frozen=True)
class NodeResult:
    """What became of a node."""

    name: str
    """The dependent's name."""
    done: list[ObjectResult] = field(default_factory=list)
    """What was done, one entry per object; empty if it failed or was inactive."""
    conditions: list[ConditionOutcome] = field(default_factory=list)
    """The conditions that were evaluated."""
    failed: str | None = None
    """The text of its failure."""


@dataclass(frozen=True)
class WorkflowResult:
    """What became of a workflow."""

    nodes: list[NodeResult] = field(default_factory=list)
    """The nodes that were reached, in the order of the graph."""
    complete: bool = True
    """True if no node failed and, after reconciling, no ready postcondition is unmet; after cleaning up, all delete postconditions are
    met."""

    def __getitem__(self, name: str) -> NodeResult:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(node.name == name for node in self.nodes)


def reconcile(name: str | None = None) -> WorkflowResult:
    """Reconciles a standalone workflow, or the managed one, which must be explicit. Raises a `CallError` with the reason `failed` if a
    node failed, unless the manifest leaves failures to the reconciler. Works in `reconcile` and `cleanup` only, and uses up the time of
    that call."""
    return daemon().run_workflow("reconcile", optional_text(name, "a workflow"))


def cleanup(name: str | None = None) -> WorkflowResult:
    """Deletes what a workflow has made, leaves first; otherwise like `reconcile`."""
    return daemon().run_workflow("cleanup", optional_text(name, "a workflow"))


def reconcile_dependent(name: str) -> NodeResult:
    """Reconciles a standalone dependent."""
    return daemon().run_dependent("reconcile", text(name, "a dependent"))


def remove_dependent(name: str) -> NodeResult:
    """Deletes a standalone dependent."""
    return daemon().run_dependent("remove", text(name, "a dependent"))


def last_result(name: str | None = None) -> WorkflowResult | None:
    """Returns what became of a standalone workflow, or of the managed one, in this run; `None` if it has not run."""
    return daemon().last_result(optional_text(name, "a workflow"))
