"""Says who answers what an author's function asks: the daemon in a component, what stands in for it in a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from capstan.cache import Place, Query
    from capstan.context import RunInfo
    from capstan.log import Level
    from capstan.memo import Lifetime
    from capstan.operations import Comparison, ObjectRef, RemoveOptions, Verb, WriteOptions
    from capstan.recorder import Event
    from capstan.workflow import NodeResult, WorkflowResult


class Daemon(Protocol):
    """What can be asked, as the contract has it; documents are JSON texts."""

    # context, config
    def run(self) -> RunInfo | None: ...
    def next_imminent(self) -> bool: ...
    def time_left_ms(self) -> int: ...
    def settings(self) -> str: ...
    def config(self) -> str: ...

    # cache
    def find_all(self, query: Query) -> tuple[list[str], str | None]: ...
    def find_one(self, place: Place) -> str | None: ...
    def find_named(self, place: Place, namespace: str | None, name: str) -> str | None: ...

    # operations
    def write(self, verb: Verb, object: str, options: WriteOptions) -> str: ...
    def patch(self, verb: Verb, target: ObjectRef, patch: str, options: WriteOptions) -> str: ...
    def remove(self, target: ObjectRef, options: RemoveOptions) -> None: ...
    def finalizer(self, verb: Verb, finalizer: str | None) -> str: ...
    def compare(self, by: Comparison, actual: str, desired: str, ignore: list[str]) -> str | None: ...

    # workflow
    def run_workflow(self, verb: str, name: str | None) -> WorkflowResult: ...
    def run_dependent(self, verb: str, name: str) -> NodeResult: ...
    def last_result(self, name: str | None) -> WorkflowResult | None: ...

    # memo, recorder, log
    def memo_get(self, lifetime: Lifetime, key: str) -> str | None: ...
    def memo_put(self, lifetime: Lifetime, key: str, value: str | None) -> None: ...
    def publish(self, event: Event) -> None: ...
    def log(self, level: Level, message: str, fields: dict[str, str]) -> None: ...

    # system
    def now(self) -> str: ...
    def now_ms(self) -> float: ...
    def random_bytes(self, length: int) -> bytes: ...
    def uuid(self) -> str: ...


_answering: Daemon | None = None


def daemon() -> Daemon:
    """Returns who answers. Raises a `RuntimeError` while nobody does."""
    if _answering is None:
        raise RuntimeError(
            "there is nobody to ask: Capstan's functions work while the daemon calls the component, not while it is imported; "
            "in a unit test, call them within `with capstan.testing.Run():`"
        )
    return _answering


@contextmanager
def answered_by(daemon: Daemon) -> Iterator[None]:
    """Lets somebody answer for a while."""
    global _answering
    before, _answering = _answering, daemon
    try:
        yield
    finally:
        _answering = before
