"""Answers what a function under test asks, and notes what it did."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from capstan import _json
from capstan._json import Object
from capstan.cache import Place, Query, Source
from capstan.context import RunInfo
from capstan.errors import CallError
from capstan.expectations import Expectation
from capstan.log import Level
from capstan.memo import Lifetime
from capstan.operations import Comparison, Mode, ObjectRef, RemoveOptions, Verb, WriteOptions
from capstan.recorder import Event
from capstan.testing._documents import compare, json_patched, merge_patched
from capstan.testing._objects import Objects
from capstan.workflow import NodeResult, WorkflowResult

_FINALIZER = "test/finalizer"


@dataclass(frozen=True)
class Write:
    """A write that was asked for."""

    verb: Verb
    """What was asked for."""
    target: ObjectRef
    """The object that it concerns."""
    body: Any = None
    """The object or the patch; the finalizer's name; `None` for a deletion."""
    mode: Mode = "usual"
    """How it is treated."""
    subresource: str | None = None
    """The subresource, if not the object itself."""


@dataclass(frozen=True)
class Line:
    """A line of the log."""

    level: Level
    """How important it is."""
    message: str
    """What happened."""
    fields: dict[str, str] = field(default_factory=dict)
    """The facts."""


@dataclass
class Answers:
    """The daemon's side of a run, as `capstan._daemon.Daemon` describes it."""

    info: RunInfo
    is_next_imminent: bool
    time_left: float
    configured: Object
    in_force: Object
    objects: Objects
    sources: set[str] | None
    primary: Object | None
    clock: datetime
    workflows: dict[str | None, WorkflowResult]
    last_results: dict[str | None, WorkflowResult]
    dependents: dict[str, NodeResult]
    refusals: dict[Verb, CallError]
    writes: list[Write]
    logs: list[Line]
    events: list[Event]
    memos: dict[Lifetime, Object]
    expectation: Expectation | None = None
    registered: dict[str, Object] = field(default_factory=dict)
    remembered: list[Object] = field(default_factory=list)
    refused_sources: dict[str, CallError] = field(default_factory=dict)
    beside: bool = False
    # Not by chance: tests are to be repeatable.
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    # === context, config ===

    def run(self) -> RunInfo | None:
        return None if self.beside else self.info

    def next_imminent(self) -> bool:
        return self.is_next_imminent

    def time_left_ms(self) -> int:
        return round(self.time_left * 1000)

    def settings(self) -> str:
        return _json.write(self.in_force, "settings")

    def config(self) -> str:
        return _json.write(self.configured, "config")

    # === cache ===

    def find_all(self, query: Query) -> tuple[list[str], str | None]:
        self._known(query.place)
        return self.objects.page(query)

    def find_one(self, place: Place) -> str | None:
        self._known(place)
        return self.objects.one(place)

    def find_named(self, place: Place, namespace: str | None, name: str) -> str | None:
        self._known(place)
        return self.objects.named(place, namespace, name)

    def _known(self, place: Place) -> None:
        if self.sources is None or not isinstance(place, Source):
            return
        names = self.sources | set(self.registered)
        if place.name not in names:
            raise CallError("missing", f"no source is called {json.dumps(place.name)}; there are: {', '.join(sorted(names))}")

    # === operations ===

    def write(self, verb: Verb, object: str, options: WriteOptions) -> str:
        written = _json.read(object)
        target = ObjectRef.of(written)
        self._note(verb, target, _json.read(object), options)
        if verb == "create" and self.objects.get(target) is not None:
            raise CallError("conflict", f"{target.kind} {target.name} exists", 409)
        self.objects.put(target, written)
        return object

    def patch(self, verb: Verb, target: ObjectRef, patch: str, options: WriteOptions) -> str:
        change = _json.read(patch)
        self._note(verb, target, change, options)
        object = self.objects.get(target)
        if object is None:
            raise CallError("missing", f"{target.kind} {target.name} not found", 404)
        patched = merge_patched(object, change) if verb == "merge-patch" else json_patched(object, change)
        self.objects.put(target, patched)
        return _json.write(patched, "the object")

    def remove(self, target: ObjectRef, options: RemoveOptions) -> None:
        self._note("remove", target, None, {})
        self.objects.remove(target)

    def finalizer(self, verb: Verb, finalizer: str | None) -> str:
        if self.primary is None:
            raise CallError("missing", "the test has no primary")
        target, name = ObjectRef.of(self.primary), finalizer or _FINALIZER
        self._note(verb, target, name, {})
        primary = self.objects.get(target) or self.primary
        metadata = primary["metadata"]
        others = [known for known in metadata.get("finalizers", []) if known != name]
        finalizers = [*others, name] if verb == "add-finalizer" else others
        primary = {**primary, "metadata": {**metadata, "finalizers": finalizers}}
        self.objects.put(target, primary)
        return _json.write(primary, "the primary")

    def compare(self, by: Comparison, actual: str, desired: str, ignore: list[str]) -> str | None:
        return compare(by, _json.read(actual), _json.read(desired), ignore)

    def _note(self, verb: Verb, target: ObjectRef, body: Any, options: WriteOptions) -> None:
        if verb in self.refusals:
            raise self.refusals[verb]
        self.writes.append(Write(verb, target, body, options.get("mode", "usual"), options.get("subresource")))

    # === workflow ===

    def run_workflow(self, verb: str, name: str | None) -> WorkflowResult:
        if name not in self.workflows:
            raise CallError("missing", f"the test has no workflow {name or 'of the controller'}")
        self.last_results[name] = self.workflows[name]
        return self.workflows[name]

    def run_dependent(self, verb: str, name: str) -> NodeResult:
        if name not in self.dependents:
            raise CallError("missing", f"the test has no dependent {name}")
        return self.dependents[name]

    def last_result(self, name: str | None) -> WorkflowResult | None:
        return self.last_results.get(name)

    # === expectations ===

    def expect(self, name: str, timeout_ms: int) -> None:
        if not 1 <= len(name.encode()) <= 253:
            raise CallError("invalid", f"the name of an expectation has {len(name.encode())} bytes; it may have 1 to 253")
        self.expectation = Expectation(name)

    def pending_expectation(self) -> Expectation | None:
        return self.expectation

    def clear_expectation(self, name: str) -> bool:
        was = self.expectation is not None and self.expectation.name == name
        if was:
            self.expectation = None
        return was

    # === sources ===

    def register(self, name: str, declaration: str) -> bool:
        if name in self.refused_sources:
            raise self.refused_sources[name]
        new = name not in self.registered
        if new:
            self.registered[name] = _json.read(declaration)
        return new

    def deregister(self, name: str) -> None:
        self.registered.pop(name, None)

    def remember(self, name: str, actual: str, replaced: str | None) -> None:
        before = None if replaced is None else _json.read(replaced)
        self.remembered.append({"source": name, "actual": _json.read(actual), "replaced": before})

    def forget(self, name: str, id: str) -> None:
        self.remembered.append({"source": name, "forgotten": id})

    # === memo, recorder, log ===

    def memo_get(self, lifetime: Lifetime, key: str) -> str | None:
        kept = self.memos[lifetime]
        return _json.write(kept[key], "a memo") if key in kept else None

    def memo_put(self, lifetime: Lifetime, key: str, value: str | None) -> None:
        if value is None:
            self.memos[lifetime].pop(key, None)
        else:
            self.memos[lifetime][key] = _json.read(value)

    def publish(self, event: Event) -> None:
        self.events.append(event)

    def log(self, level: Level, message: str, fields: dict[str, str]) -> None:
        self.logs.append(Line(level, message, fields))

    # === system ===

    def now(self) -> str:
        return _json.timestamp(self.clock)

    def now_ms(self) -> float:
        return self.clock.timestamp() * 1000

    def random_bytes(self, length: int) -> bytes:
        return self.chance.randbytes(length)

    def uuid(self) -> str:
        return str(uuid.UUID(bytes=self.chance.randbytes(16), version=4))
