"""Knows what an author's functions are for: each decorator notes a function and returns it unchanged."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar, Union, overload

from capstan import _typed
from capstan.answers import Met, Created, Handled, Deletion, Key, NextRetry, Problem, Received, Things, Update
from capstan.errors import Error

Reconcile = TypeVar("Reconcile", bound=Callable[..., Union[Update, None]])
Cleanup = TypeVar("Cleanup", bound=Callable[..., Union[Deletion, None]])
HandleError = TypeVar("HandleError", bound=Callable[..., Union[Handled, None]])
DecideRetry = TypeVar("DecideRetry", bound=Callable[..., Union[NextRetry, None]])
Validate = TypeVar("Validate", bound=Callable[..., Union[str, Problem, Sequence[Union[str, Problem]], None]])
Initialize = TypeVar("Initialize", bound=Callable[..., None])
Desired = TypeVar("Desired", bound=Callable[..., Any])
DesiredSet = TypeVar("DesiredSet", bound=Callable[..., Sequence[Any]])
Create = TypeVar("Create", bound=Callable[..., Union[Created, Mapping[str, Any], Any]])
Write = TypeVar("Write", bound=Callable[..., Any])
Remove = TypeVar("Remove", bound=Callable[..., None])
Match = TypeVar("Match", bound=Callable[..., Union[str, bool, None]])
Met = TypeVar("Met", bound=Callable[..., Union[bool, Met]])
Poll = TypeVar("Poll", bound=Callable[..., Mapping[Any, Any]])
PollOne = TypeVar("PollOne", bound=Callable[..., Union[Sequence[Any], Things, None]])
Receive = TypeVar("Receive", bound=Callable[..., Union[Received, None]])
Accepts = TypeVar("Accepts", bound=Callable[..., bool])
Mapped = TypeVar("Mapped", bound=Callable[..., Union[Sequence[Key], None]])


class Interface(Enum):
    """What a component may export: the contract's name, what one function of it is called, and what it is given."""

    RECONCILER = ("reconciler", "reconciler", ("primary",))
    CLEANER = ("cleaner", "cleanup", ("primary",))
    ERROR_HANDLER = ("error-handler", "error handler", ("primary", "failure"))
    RETRY_POLICY = ("retry-policy", "retry policy", ("primary", "failed"))
    VALIDATOR = ("validator", "validator", ("primary",))
    INITIALIZER = ("initializer", "initializer", ("primary",))
    DEPENDENT = ("dependent", "desired state for", ("primary",))
    BULK = ("bulk", "desired set for", ("primary",))
    CREATE = ("external", "creator of", ("desired", "primary"))
    UPDATE = ("external", "updater of", ("actual", "desired", "primary"))
    REMOVE = ("external", "remover of", ("actual", "primary"))
    MATCHER = ("matcher", "matcher", ("actual", "desired", "primary"))
    CONDITION = ("condition", "condition", ("primary", "dependent"))
    POLLER = ("poller", "poller of", ())
    RESOURCE_POLLER = ("resource-poller", "resource poller of", ("primary",))
    INBOUND = ("inbound", "receiver of", ("request",))
    FILTER = ("filter", "filter", ("change",))
    MAPPER = ("mapper", "mapper", ("secondary",))
    SECONDARY_MAPPER = ("secondary-mapper", "secondary mapper", ("primary",))

    def __init__(self, wit: str, noun: str, given: tuple[str, ...]) -> None:
        self.wit = wit
        self.noun = noun
        self.given = given


@dataclass(frozen=True)
class Registered:
    """A function, and what it is for."""

    interface: Interface
    name: str | None
    """Its name in the manifest; `None` where a controller has one such function."""
    controller: str | None
    """The controller that it is for; `None` for all that have no other."""
    function: Callable[..., Any]
    takes: int
    """How many of the arguments it wants, from the first one on."""
    readers: list[Any] = field(default_factory=list, compare=False, repr=False)
    """What makes its arguments of JSON, once that is known."""

    def __call__(self, *arguments: Any) -> Any:
        if not self.readers:
            self.prepare()
        given = zip(arguments[: self.takes], self.readers)
        return self.function(*(read(one) if read and isinstance(one, (dict, list)) else one for one, read in given))

    def prepare(self) -> None:
        """Finds out of which types its arguments are. All of them have to be defined by then."""
        known = _typed.arguments(self.function, self.takes)
        self.readers[:] = known + [None] * (max(self.takes, 1) - len(known))

    def __str__(self) -> str:
        name = f" `{self.name}`" if self.name else ""
        controller = f" for the controller `{self.controller}`" if self.controller else ""
        return f"{self.interface.noun}{name}{controller}"

    @property
    def place(self) -> str:
        """Where the function is written."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


registered: list[Registered] = []
"""All functions, in the order of their definition."""


def interfaces() -> list[Interface]:
    """Returns what a component of these functions exports."""
    return [interface for interface in Interface if any(entry.interface is interface for entry in registered)]


@dataclass(frozen=True)
class Known:
    """The names that an interface answers to, for one controller, or for all if it is `None`."""

    interface: Interface
    controller: str | None
    names: list[str] | None
    """`None` if its function takes no name."""


def described() -> list[Known]:
    """Returns what is registered by interface and controller, as the daemon compares it with a manifest."""
    names: dict[tuple[Interface, str | None], list[str | None]] = {}
    for entry in registered:
        names.setdefault((entry.interface, entry.controller), []).append(entry.name)
    return [
        Known(interface, controller, None if None in found else [name for name in found if name is not None])
        for (interface, controller), found in names.items()
    ]


def twice() -> list[str]:
    """Returns a sentence on each function that stands where another one does already."""
    seen: dict[tuple[Interface, str | None, str | None], Registered] = {}
    sentences = []
    for entry in registered:
        first = seen.setdefault((entry.interface, entry.name, entry.controller), entry)
        if first is not entry:
            sentences.append(f"two functions are the {entry}: {first.place} and {entry.place}")
    return sentences


def find(interface: Interface, controller: str, name: str | None = None) -> Registered | None:
    """Returns the function for a controller: its own, otherwise the one for all."""
    fitting = [entry for entry in _of(interface, controller) if entry.name == name]
    return next((entry for entry in fitting if entry.controller), fitting[0] if fitting else None)


def get(interface: Interface, controller: str, name: str | None = None) -> Registered:
    """Returns the function for a controller, like `find`. The `Error` says which there are."""
    entry = find(interface, controller, name)
    if entry is not None:
        return entry
    if name is None:
        others = (entry.controller for entry in registered if entry.interface is interface and entry.controller)
        raise Error(f"this component has no {interface.noun} for the controller `{controller}`; it has: {_listed(others)}")
    known = (entry.name for entry in _of(interface, controller) if entry.name)
    raise Error(f"this component has no {interface.noun} `{name}`; it has: {_listed(known)}")


@overload
def reconcile(function: Reconcile, /) -> Reconcile: ...
@overload
def reconcile(*, controller: str | None = None) -> Callable[[Reconcile], Reconcile]: ...
def reconcile(function: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that brings the world in line with a primary.

    It is given the primary as the cache has it, after the managed workflow, and returns an `Update` or `None`. What it raises is
    retried as the manifest says.
    """
    return _single(Interface.RECONCILER, function, controller)


@overload
def cleanup(function: Cleanup, /) -> Cleanup: ...
@overload
def cleanup(*, controller: str | None = None) -> Callable[[Cleanup], Cleanup]: ...
def cleanup(function: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that tidies up before a primary goes. To have one makes the controller use a finalizer.

    It is given a primary that is marked for deletion, after the clean-up of the managed workflow. Once it returns `None` the primary
    goes; `Deletion(keep_finalizer=True)` says that it may not go yet. What it raises is retried as the manifest says.
    """
    return _single(Interface.CLEANER, function, controller)


@overload
def handle_error(function: HandleError, /) -> HandleError: ...
@overload
def handle_error(*, controller: str | None = None) -> Callable[[HandleError], HandleError]: ...
def handle_error(function: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that decides what a failed run leaves behind.

    It is given the primary and a `Failure`, if it takes both, after a failure of `reconcile` or of the managed workflow. It returns
    `Handled(…)`, or `None` as if it were not there.
    """
    return _single(Interface.ERROR_HANDLER, function, controller)


@overload
def decide_retry(function: DecideRetry, /) -> DecideRetry: ...
@overload
def decide_retry(*, controller: str | None = None) -> Callable[[DecideRetry], DecideRetry]: ...
def decide_retry(function: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that decides when a failed run is retried.

    It is given the primary and a `FailedRun`, if it takes both, after a failure of a run that reconciles or cleans up, when a retry
    would follow. It returns `NextRetry(…)`, or `None`: as the manifest says. What it raises leaves the delay to the manifest, too.
    """
    return _single(Interface.RETRY_POLICY, function, controller)


@overload
def validate(function: Validate, /) -> Validate: ...
@overload
def validate(*, controller: str | None = None) -> Callable[[Validate], Validate]: ...
def validate(function: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that says whether a primary is one that the component can work with.

    It is given the primary, before anything else in each run that reconciles, and sees that alone: of what the daemon offers, `config` and
    the log work there. It returns what is wrong: a text, a `Problem(message, field)`, a list of those, or `None`. Nothing is written then but the
    status, until the primary changes. What it raises is a failure of the run, and is retried.
    """
    return _single(Interface.VALIDATOR, function, controller)


@overload
def initialize(function: Initialize, /) -> Initialize: ...
@overload
def initialize(*, controller: str | None = None) -> Callable[[Initialize], Initialize]: ...
def initialize(function: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that prepares a run.

    It is given the primary, first in each run, before the managed workflow, whether the run will reconcile or clean up. It usually puts
    values into `memo.run` for the calls that follow, and returns `None`. What it raises is a failure of the run, which ends with it.
    """
    return _single(Interface.INITIALIZER, function, controller)


@overload
def desired(function: Desired, /) -> Desired: ...
@overload
def desired(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Desired], Desired]: ...
def desired(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that says what a dependent should look like. Without a name it is that of the function, with `-` for `_`.

    It is given the primary, and returns the object. The namespace defaults to the primary's; owner references are added by the daemon.
    Under another name than before it is another object; what becomes of the former one is said by `onRename` in the manifest.
    """
    return _named(Interface.DEPENDENT, name, controller)


@overload
def desired_set(function: DesiredSet, /) -> DesiredSet: ...
@overload
def desired_set(name: str | None = None, /, *, controller: str | None = None) -> Callable[[DesiredSet], DesiredSet]: ...
def desired_set(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that says of which objects a dependent with `bulk: true` should consist. Without a name it is that of the
    function, with `-` for `_`.

    It is given the primary, and returns a list of objects, each as a function with `@desired` would return it; the same name and namespace
    once. What the daemon has made for this dependent and primary beyond them is deleted first.
    """
    return _named(Interface.BULK, name, controller)


@overload
def create_external(function: Create, /) -> Create: ...
@overload
def create_external(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Create], Create]: ...
def create_external(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that creates what is desired of a dependent outside of the cluster (`external` in the manifest). A component with one
    has one with `@update_external` and with `@remove_external` as well.

    It is given what is desired and the primary, and returns the thing as it is then, with its id where the source's `id` in the manifest says; with
    `state` in the manifest, `Created(thing, state)`. It has to bear being repeated: the daemon may end before it has kept the answer.
    """
    return _named(Interface.CREATE, name, controller)


@overload
def update_external(function: Write, /) -> Write: ...
@overload
def update_external(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Write], Write]: ...
def update_external(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that makes a thing outside of the cluster as desired.

    It is given the thing, what is desired and the primary, and returns the thing as it is then, with the same id.
    """
    return _named(Interface.UPDATE, name, controller)


@overload
def remove_external(function: Remove, /) -> Remove: ...
@overload
def remove_external(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Remove], Remove]: ...
def remove_external(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks the function that removes a thing outside of the cluster.

    It is given the thing and the primary, and returns `None`. That the thing is gone already is a success.
    """
    return _named(Interface.REMOVE, name, controller)


@overload
def match(function: Match, /) -> Match: ...
@overload
def match(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Match], Match]: ...
def match(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that compares a dependent in its own way. Its name is what the manifest says after `export:`.

    It is given the actual object, the desired one and the primary, or as many of these as it takes. It returns `None`, `True` or an empty text
    if they match, otherwise a text on what differs. The text is logged, so no secrets in it.
    """
    return _named(Interface.MATCHER, name, controller)


@overload
def condition(function: Met, /) -> Met: ...
@overload
def condition(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Met], Met]: ...
def condition(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that decides a condition of a workflow. Its name is what the manifest says after `export:`.

    It is given the primary and, if it takes both, the name of the dependent, whose objects are those of the source of that name. It
    returns a bool, or a `Met` to add a detail.
    """
    return _named(Interface.CONDITION, name, controller)


@overload
def poll(function: Poll, /) -> Poll: ...
@overload
def poll(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Poll], Poll]: ...
def poll(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that reads things outside of the cluster for all primaries at once. Its name is that of a source with `poll`.

    It is given nothing, and returns a dict: for each primary, `(namespace, name)` or the name alone, a list of things. Each thing is
    JSON with an id where the manifest says; a primary that is not in the dict has none. What it raises keeps what was known, and is
    tried again. It is called when it is time, outside of all runs: `context.run()` is `None`.
    """
    return _named(Interface.POLLER, name, controller)


@overload
def poll_one(function: PollOne, /) -> PollOne: ...
@overload
def poll_one(name: str | None = None, /, *, controller: str | None = None) -> Callable[[PollOne], PollOne]: ...
def poll_one(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that reads things outside of the cluster for one primary. Its name is that of a source with `pollEach`, or with
    `inbound` and `fetch`.

    It is given the primary, and returns a list of things, or `Things(…)` to say when they are read again; `None` if there are none. What
    it raises keeps what was known, and is tried again. It is called when it is time, by the first look of a run at the things of a
    primary, and when a request has only said that something has changed, always outside of the run: `context.run()` is `None`.
    """
    return _named(Interface.RESOURCE_POLLER, name, controller)


@overload
def receive(function: Receive, /) -> Receive: ...
@overload
def receive(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Receive], Receive]: ...
def receive(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that understands requests from outside. Its name is that of a source with `inbound`.

    It is given the `Request`, and returns `Received(…)`; `None` if it says nothing. What it raises is answered with status 500, and nothing
    of the request is kept. It is called outside of all runs.
    """
    return _named(Interface.INBOUND, name, controller)


@overload
def accepts(function: Accepts, /) -> Accepts: ...
@overload
def accepts(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Accepts], Accepts]: ...
def accepts(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that decides which changes of objects matter, where CEL is not enough. Its name is what the manifest says after
    `export:`.

    It is given the `Change`, and returns a bool. What it raises lets the change pass. It is called outside of all runs.
    """
    return _named(Interface.FILTER, name, controller)


@overload
def to_primaries(function: Mapped, /) -> Mapped: ...
@overload
def to_primaries(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Mapped], Mapped]: ...
def to_primaries(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that finds the primaries of a secondary. Its name is what the manifest says after `mapper: { export: … }`.

    It is given the secondary, and returns a list of names, each `"name"`, `"namespace/name"` or `(namespace, name)`; `None` if there are
    none. It is called once for each version of a secondary, outside of all runs. What it raises keeps what was known, and is tried again.
    """
    return _named(Interface.MAPPER, name, controller)


@overload
def to_secondaries(function: Mapped, /) -> Mapped: ...
@overload
def to_secondaries(name: str | None = None, /, *, controller: str | None = None) -> Callable[[Mapped], Mapped]: ...
def to_secondaries(name: Any = None, /, *, controller: str | None = None) -> Any:
    """Marks a function that finds the secondaries of a primary. Its name is what the manifest says after `secondaries: { export: … }`.

    It is given the primary, and returns what a function with `@to_primaries` does. It is called when a run reads them for the first time
    with this version of its primary. What it raises is a failure of that read.
    """
    return _named(Interface.SECONDARY_MAPPER, name, controller)


def _single(interface: Interface, function: Any, controller: str | None) -> Any:
    def register(function: Any) -> Any:
        return _add(interface, None, controller, function)

    return register if function is None else register(function)


def _named(interface: Interface, name: Any, controller: str | None) -> Any:
    def register(function: Any) -> Any:
        own = name if isinstance(name, str) else function.__name__.replace("_", "-")
        return _add(interface, own, controller, function)

    return register(name) if callable(name) else register


def _add(interface: Interface, name: str | None, controller: str | None, function: Any) -> Any:
    registered.append(Registered(interface, name, controller, function, _takes(interface, function)))
    return function


def _takes(interface: Interface, function: Any) -> int:
    """Returns how many arguments a function wants. A `TypeError` says if it can't be called with what it is given."""
    given = interface.given
    who = f"{function.__module__}.{function.__qualname__}"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{who} is async or a generator; Capstan calls ordinary functions (`def`, `return`)")
    signature = inspect.signature(function)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        count = len(given)
    else:
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        count = min(sum(kind in positional for kind in kinds), len(given))
    try:
        signature.bind(*given[:count])
    except TypeError as error:
        raise TypeError(f"{who}{signature} can't serve as {interface.wit}, which is given ({', '.join(given)}): {error}") from None
    return count


def _of(interface: Interface, controller: str) -> list[Registered]:
    return [entry for entry in registered if entry.interface is interface and entry.controller in (None, controller)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
