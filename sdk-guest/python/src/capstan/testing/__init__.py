"""Stands in for the daemon in unit tests, with values: no cluster and no component is needed.

    def test_a_page_with_replicas_is_good():
        run = Run(PAGE, secondaries={"deployment": {"status": {"readyReplicas": 1}}})
        with run:
            assert webpage(PAGE) == Update(status={"areWeGood": True})
        assert run.logs == [Line("info", "reconciled", {"page": "hello"})]

A decorated function is an ordinary function, and is called as one. `run.desired("service")` and the like call what is registered, by its
name and over JSON, as the daemon does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import Any

from capstan import _calls, _json
from capstan._daemon import answered_by
from capstan._json import Object
from capstan.answers import Change, Met, Created, Handled, Deletion, NextRetry, Problem, Received, Request, Things, Told, Update
from capstan.context import Retry, RunInfo
from capstan.errors import CallError, FailedRun, Failure
from capstan.expectations import Expectation
from capstan.log import Handler
from capstan.memo import Lifetime
from capstan.operations import Verb
from capstan.recorder import Event
from capstan.testing._answers import Answers, Line, Write
from capstan.testing._objects import Objects, Several
from capstan.workflow import NodeResult, WorkflowResult

__all__ = ["Line", "Run", "Write"]

_NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


class Run:
    """A run of a controller: what the daemon knows before, what was asked of it meanwhile.

    primary: the primary of the run. controller: the controller's name. beside: the call belongs to no run, as those of `validate`, `poll` and the
    like; the methods for these see to that themselves. sources: those of the controller; others are refused then, as the daemon refuses them. secondaries: for each source the objects that belong to the
    primary, one or several. things: for each source outside of the cluster those of the primary, by id. unrelated: for each source those that do not. primaries: the other primaries. indexes: for each index and
    key the names of objects. config: the plugin's `config`. settings: the settings in force. retry, primary_deleted,
    final_state_unknown, next_imminent, time_left (in seconds): see `capstan.context`. expectation: what is expected of the primary. memos: for each lifetime the values that are kept.
    now: the time, which stands still. workflows: what becomes of each workflow when it is run; `None` is the managed one. last_results:
    the same, for those that have run before. dependents: what becomes of standalone dependents. refuse: for each verb the error that
    its calls meet. registered: the sources from earlier runs, by name, as they were declared. refuse_sources: for each name of a source the
    error that registering it meets.
    """

    writes: list[Write]
    """What was written, in order."""
    logs: list[Line]
    """The lines of the log, those of Python's `logging` too."""
    events: list[Event]
    """The Kubernetes Events that were recorded."""
    memos: dict[Lifetime, Object]
    """The values that are kept now."""

    def __init__(
        self,
        primary: Object | None = None,
        *,
        controller: str = "test",
        beside: bool = False,
        sources: Sequence[str] | None = None,
        secondaries: Several | None = None,
        unrelated: Several | None = None,
        things: Mapping[str, Mapping[str, Any]] | None = None,
        primaries: Sequence[Object] = (),
        indexes: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        config: Object | None = None,
        settings: Object | None = None,
        retry: Retry | None = None,
        primary_deleted: bool = False,
        final_state_unknown: bool = False,
        next_imminent: bool = False,
        time_left: float = 5.0,
        expectation: Expectation | None = None,
        memos: Mapping[Lifetime, Object] | None = None,
        now: datetime = _NOON,
        workflows: Mapping[str | None, WorkflowResult] | None = None,
        last_results: Mapping[str | None, WorkflowResult] | None = None,
        dependents: Sequence[NodeResult] = (),
        refuse: Mapping[Verb, CallError] | None = None,
        registered: Mapping[str, Object] | None = None,
        refuse_sources: Mapping[str, CallError] | None = None,
    ) -> None:
        known = list(primaries) if primary is None else [primary, *primaries]
        self.primary = primary
        self.writes = []
        self.logs = []
        self.events = []
        self.memos = {lifetime: dict((memos or {}).get(lifetime, {})) for lifetime in ("run", "primary", "plugin")}
        self._answers = Answers(
            info=RunInfo(controller, retry, primary_deleted, final_state_unknown),
            is_next_imminent=next_imminent,
            time_left=time_left,
            configured=config or {},
            in_force=settings or _settings(controller),
            objects=Objects(secondaries or {}, unrelated or {}, known, indexes or {}, things or {}),
            sources=None if sources is None else {*sources, *(secondaries or {}), *(unrelated or {}), *(things or {})},
            primary=primary,
            clock=now,
            workflows=dict(workflows or {}),
            last_results=dict(last_results or {}),
            dependents={node.name: node for node in dependents},
            refusals=dict(refuse or {}),
            writes=self.writes,
            logs=self.logs,
            events=self.events,
            memos=self.memos,
            expectation=expectation,
            registered=dict(registered or {}),
            refused_sources=dict(refuse_sources or {}),
            beside=beside,
        )
        self._entered: list[ExitStack] = []

    @property
    def expectation(self) -> Expectation | None:
        """What is expected of the primary now."""
        return self._answers.expectation

    @property
    def registered(self) -> dict[str, Object]:
        """The sources that are registered now, by name, as they were declared."""
        return dict(self._answers.registered)

    @property
    def remembered(self) -> list[Object]:
        """What was told to sources of things outside of the cluster, in order: `{"source", "actual", "replaced"}`, or `{"source", "forgotten"}` with the
        id."""
        return list(self._answers.remembered)

    def __enter__(self) -> Run:
        undo = ExitStack()
        undo.enter_context(answered_by(self._answers))
        root = logging.getLogger()
        if not any(isinstance(handler, Handler) for handler in root.handlers):
            handler = Handler()
            undo.callback(root.setLevel, root.level)
            undo.callback(root.removeHandler, handler)
            root.addHandler(handler)
            root.setLevel(1)
        self._entered.append(undo)
        return self

    def __exit__(self, *failure: object) -> None:
        self._entered.pop().close()

    def reconcile(self, primary: Object | None = None) -> Update:
        """Calls the function with `@reconcile`."""
        with self:
            return _calls.reconcile(self._primary(primary))

    def cleanup(self, primary: Object | None = None) -> Deletion | None:
        """Calls the function with `@cleanup`."""
        with self:
            return _calls.cleanup(self._primary(primary))

    def handle_error(self, failure: Failure, primary: Object | None = None) -> Handled | None:
        """Calls the function with `@handle_error`."""
        with self:
            return _calls.handle_error(self._primary(primary), failure)

    def decide_retry(self, failed: FailedRun, primary: Object | None = None) -> NextRetry:
        """Calls the function with `@decide_retry`."""
        with self:
            return _calls.decide_retry(self._primary(primary), failed)

    def validate(self, primary: Object | None = None) -> list[Problem]:
        """Calls the function with `@validate`; returns what is wrong."""
        with self, self._beside():
            return _calls.validate(self._primary(primary))

    def initialize(self, primary: Object | None = None) -> None:
        """Calls the function with `@initialize`."""
        with self:
            _calls.initialize(self._primary(primary))

    def desired(self, name: str, primary: Object | None = None) -> Object:
        """Calls the function with `@desired(name)`."""
        with self:
            desired: Object = _json.read(_calls.desired(name, self._primary(primary)))
            return desired

    def desired_set(self, name: str, primary: Object | None = None) -> list[Object]:
        """Calls the function with `@desired_set(name)`."""
        with self:
            return [_json.read(one) for one in _calls.desired_set(name, self._primary(primary))]

    def create_external(self, name: str, desired: Object, primary: Object | None = None) -> Created:
        """Calls the function with `@create_external(name)`."""
        wanted = _json.write(desired, "desired")
        with self:
            thing, state = _calls.create(name, wanted, self._primary(primary))
        return Created(_json.read(thing), None if state is None else _json.read(state))

    def update_external(self, name: str, actual: Object, desired: Object, primary: Object | None = None) -> Object:
        """Calls the function with `@update_external(name)`."""
        documents = _json.write(actual, "actual"), _json.write(desired, "desired")
        with self:
            updated: Object = _json.read(_calls.update(name, *documents, self._primary(primary)))
            return updated

    def remove_external(self, name: str, actual: Object, primary: Object | None = None) -> None:
        """Calls the function with `@remove_external(name)`."""
        thing = _json.write(actual, "actual")
        with self:
            _calls.remove(name, thing, self._primary(primary))

    def match(self, name: str, actual: Object, desired: Object, primary: Object | None = None) -> str | None:
        """Calls the function with `@match(name)`; returns what differs."""
        documents = _json.write(actual, "actual"), _json.write(desired, "desired")
        with self:
            return _calls.match(name, *documents, self._primary(primary))

    def is_met(self, name: str, dependent: str = "", primary: Object | None = None) -> Met:
        """Calls the function with `@condition(name)`."""
        with self:
            return _calls.is_met(name, dependent, self._primary(primary))

    def poll(self, name: str) -> dict[tuple[str | None, str], list[Any]]:
        """Calls the function with `@poll(name)`; returns the things of each primary, by namespace and name."""
        with self, self._beside():
            polled = _calls.poll(name)
        return {(namespace, primary): [_json.read(thing) for thing in things] for namespace, primary, things in polled}

    def poll_one(self, name: str, primary: Object | None = None) -> Things:
        """Calls the function with `@poll_one(name)`."""
        with self, self._beside():
            things, again = _calls.poll_one(name, self._primary(primary))
        return Things([_json.read(thing) for thing in things], again)

    def receive(self, name: str, request: Request) -> Received:
        """Calls the function with `@receive(name)`."""
        with self, self._beside():
            status, text, found = _calls.receive(name, request)
        events = [Told(namespace, of, None if thing is None else _json.read(thing), gone) for namespace, of, thing, gone in found]
        return Received(events, status, text)

    def accepts(self, name: str, change: Change) -> bool:
        """Calls the function with `@accepts(name)`."""
        with self, self._beside():
            return _calls.accepts(name, change)

    def to_primaries(self, name: str, secondary: Object) -> list[tuple[str | None, str]]:
        """Calls the function with `@to_primaries(name)`; returns namespace and name of each."""
        with self, self._beside():
            return _calls.to_primaries(name, _json.write(secondary, "the secondary"))

    def to_secondaries(self, name: str, primary: Object | None = None) -> list[tuple[str | None, str]]:
        """Calls the function with `@to_secondaries(name)`; returns namespace and name of each."""
        with self, self._beside():
            return _calls.to_secondaries(name, self._primary(primary))

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Lets a call belong to no run, as the daemon has it."""
        before, self._answers.beside = self._answers.beside, True
        try:
            yield
        finally:
            self._answers.beside = before

    def _primary(self, primary: Object | None) -> str:
        given = primary if primary is not None else self.primary
        if given is None:
            raise ValueError("this run has no primary: Run(primary)")
        return _json.write(given, "the primary")


def _settings(controller: str) -> Object:
    daemon = {"identity": "test", "namespace": "default", "version": "0.1.0"}
    return {"controller": {"name": controller}, "daemon": daemon}
