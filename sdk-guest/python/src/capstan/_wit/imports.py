"""Asks the daemon: each function of the contract's imports, with our types for the generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import ModuleType
from typing import Any, TypeVar, cast

from componentize_py_types import Err
from wit_world.imports import cache, config, context, expectations, log, memo, operations, recorder, sources, system, types, workflow

from capstan import _json
from capstan.cache import Everywhere, Indexed, Kind, Namespaced, Place, Primaries, Query, Related, Source
from capstan.context import Retry, RunInfo
from capstan.errors import CallError, Reason
from capstan.expectations import Expectation
from capstan.log import Level
from capstan.memo import Lifetime
from capstan.operations import Comparison, ObjectRef, RemoveOptions, Verb, WriteOptions
from capstan.recorder import Event
from capstan.workflow import (
    ConditionOutcome,
    ConditionRole,
    NodeResult,
    ObjectResult,
    Operation,
    WorkflowResult,
)

Answer = TypeVar("Answer")


class Imports:
    """The daemon, as `capstan._daemon.Daemon` describes it."""

    # === context, config ===

    def run(self) -> RunInfo | None:
        info = context.run()
        if info is None:
            return None
        retry = None if info.retry is None else Retry(info.retry.attempt, info.retry.last)
        return RunInfo(info.controller, retry, info.primary_deleted, info.final_state_unknown)

    def next_imminent(self) -> bool:
        return context.next_imminent()

    def time_left_ms(self) -> int:
        return context.time_left_ms()

    def settings(self) -> str:
        return context.settings()

    def config(self) -> str:
        return config.get()

    # === cache ===

    def find_all(self, query: Query) -> tuple[list[str], str | None]:
        question = cache.Query(
            place=_place(query.place),
            selection=_selection(query.selection),
            labels=query.labels,
            fields=list(query.fields),
            newest_only=query.newest_only,
            limit=query.limit,
            after=query.after,
        )
        page = _ask(cache.find_all, question)
        return page.items, page.next

    def find_one(self, place: Place) -> str | None:
        return _ask(cache.find_one, _place(place))

    def find_named(self, place: Place, namespace: str | None, name: str) -> str | None:
        return _ask(cache.find_named, _place(place), types.ObjectKey(namespace, name))

    # === operations ===

    def write(self, verb: Verb, object: str, options: WriteOptions) -> str:
        return cast(str, _ask(_function(operations, verb), object, _write_options(options)))

    def patch(self, verb: Verb, target: ObjectRef, patch: str, options: WriteOptions) -> str:
        return cast(str, _ask(_function(operations, verb), _reference(target), patch, _write_options(options)))

    def remove(self, target: ObjectRef, options: RemoveOptions) -> None:
        propagation = case(operations.Propagation, options.propagation)
        fine = operations.RemoveOptions(propagation, options.uid, options.resource_version, options.grace_seconds)
        _ask(operations.remove, _reference(target), fine)

    def finalizer(self, verb: Verb, finalizer: str | None) -> str:
        return cast(str, _ask(_function(operations, verb), finalizer))

    def compare(self, by: Comparison, actual: str, desired: str, ignore: list[str]) -> str | None:
        result = _ask(operations.compare, case(operations.Comparison, by), actual, desired, ignore)
        return result.value if isinstance(result, types.MatchResult_Differs) else None

    # === workflow ===

    def run_workflow(self, verb: str, name: str | None) -> WorkflowResult:
        return _workflow_result(_ask(_function(workflow, verb), name))

    def run_dependent(self, verb: str, name: str) -> NodeResult:
        return _node_result(_ask(_function(workflow, f"{verb}-dependent"), name))

    def last_result(self, name: str | None) -> WorkflowResult | None:
        result = workflow.last_result(name)
        return None if result is None else _workflow_result(result)

    # === expectations ===

    def expect(self, name: str, timeout_ms: int) -> None:
        _ask(expectations.expect, name, timeout_ms)

    def pending_expectation(self) -> Expectation | None:
        expected = expectations.pending()
        return None if expected is None else Expectation(expected.name, expected.timed_out)

    def clear_expectation(self, name: str) -> bool:
        return expectations.clear(name)

    # === sources ===

    def register(self, name: str, declaration: str) -> bool:
        return _ask(sources.register, name, declaration)

    def deregister(self, name: str) -> None:
        _ask(sources.deregister, name)

    def remember(self, name: str, actual: str, replaced: str | None) -> None:
        _ask(sources.remember, name, actual, replaced)

    def forget(self, name: str, id: str) -> None:
        _ask(sources.forget, name, id)

    # === memo, recorder, log ===

    def memo_get(self, lifetime: Lifetime, key: str) -> str | None:
        return memo.get(case(memo.Lifetime, lifetime), key)

    def memo_put(self, lifetime: Lifetime, key: str, value: str | None) -> None:
        _ask(memo.put, case(memo.Lifetime, lifetime), key, value)

    def publish(self, event: Event) -> None:
        recorder.publish(
            recorder.Event(
                severity=case(recorder.Severity, event.severity),
                reason=event.reason,
                message=event.message,
                key=event.key,
                action=event.action,
                component=event.component,
                labels=_pairs(event.labels),
                annotations=_pairs(event.annotations),
            )
        )

    def log(self, level: Level, message: str, fields: dict[str, str]) -> None:
        log.write(case(log.Level, level), message, _pairs(fields))

    # === system ===

    def now(self) -> str:
        return system.now()

    def now_ms(self) -> float:
        return system.now_ms()

    def random_bytes(self, length: int) -> bytes:
        return system.random_bytes(length)

    def uuid(self) -> str:
        return system.uuid()


Case = TypeVar("Case", bound=Enum)


def case(cases: type[Case], word: str) -> Case:
    """Returns the case of a generated enum that is called so in the contract."""
    return cases[word.upper().replace("-", "_")]


def word(case: Enum) -> str:
    """Returns what a case of a generated enum is called in the contract."""
    return case.name.lower().replace("_", "-")


def _function(module: ModuleType, verb: str) -> Callable[..., Any]:
    """Returns the function that is called so in the contract."""
    function: Callable[..., Any] = getattr(module, verb.replace("-", "_"))
    return function


def _ask(function: Callable[..., Answer], *arguments: Any) -> Answer:
    try:
        return function(*arguments)
    except Err as refused:
        error = refused.value
        raise CallError(cast(Reason, word(error.reason)), error.message, error.code or None) from None


def _place(place: Place) -> Any:
    if isinstance(place, Source):
        return cache.Place_Source(place.name)
    if isinstance(place, Kind):
        return cache.Place_Kind(types.KindRef(place.api_version, place.kind))
    if isinstance(place, Primaries):
        return cache.Place_Primaries()
    raise TypeError(f"{place!r} is no place")


def _selection(selection: Related | Namespaced | Everywhere | Indexed) -> Any:
    if isinstance(selection, Namespaced):
        return cache.Selection_Namespaced(selection.namespace)
    if isinstance(selection, Indexed):
        return cache.Selection_Indexed(cache.IndexEntry(selection.index, selection.key))
    return cache.Selection_Related() if isinstance(selection, Related) else cache.Selection_Everywhere()


def _write_options(options: WriteOptions) -> Any:
    if not options:
        return None
    comparison, actual = options.get("compare_by"), options.get("actual")
    return operations.WriteOptions(
        mode=case(operations.WriteMode, options.get("mode", "usual")),
        compare_by=None if comparison is None else case(operations.Comparison, comparison),
        subresource=options.get("subresource"),
        source=options.get("source"),
        actual=None if actual is None else _json.write_object(actual, "actual"),
    )


def _reference(target: ObjectRef) -> Any:
    return types.ObjectRef(target.api_version, target.kind, target.namespace, target.name)


def _pairs(fields: Mapping[str, str]) -> list[Any]:
    return [types.Pair(name, value) for name, value in fields.items()]


def _workflow_result(result: Any) -> WorkflowResult:
    return WorkflowResult([_node_result(node) for node in result.nodes], result.complete)


def _node_result(node: Any) -> NodeResult:
    done = [ObjectResult(one.key, cast(Operation, word(one.operation))) for one in node.done]
    conditions = [
        ConditionOutcome(cast(ConditionRole, word(one.role)), one.met, None if one.detail is None else _json.read(one.detail))
        for one in node.conditions
    ]
    return NodeResult(node.name, done, conditions, node.failed)
