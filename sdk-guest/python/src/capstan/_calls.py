"""Decides how a call of the daemon becomes a call of the author's function, and what that may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from capstan import _json
from capstan._daemon import daemon
from capstan._json import printable
from capstan._words import namespace_of
from capstan.answers import Change, Met, Created, Duration, Handled, Deletion, NextRetry, Problem, Received, Request, Things, Told, Update
from capstan.errors import FailedRun, Failure
from capstan.registry import Interface, Registered, find, get

Answer = TypeVar("Answer")


def reconcile(primary: str) -> Update:
    """Brings the world in line with a primary."""
    function = get(Interface.RECONCILER, _controller())
    answer = _answer(function, function(_json.read(primary)), Update, "an Update or None")
    return answer or Update()


def cleanup(primary: str) -> Deletion | None:
    """Tidies up before a primary goes. A controller without such a function has nothing to tidy up."""
    function = find(Interface.CLEANER, _controller())
    if function is None:
        return None
    return _answer(function, function(_json.read(primary)), Deletion, "Deletion(…) or None")


def handle_error(primary: str, failure: Failure) -> Handled | None:
    """Decides what a failed run leaves behind. A controller without such a function leaves that to the daemon."""
    function = find(Interface.ERROR_HANDLER, _controller())
    if function is None:
        return None
    return _answer(function, function(_json.read(primary), failure), Handled, "Handled(…) or None")


def decide_retry(primary: str, failed: FailedRun) -> NextRetry:
    """Decides when a failed run is retried. A controller without such a function leaves that to the manifest."""
    function = find(Interface.RETRY_POLICY, _controller())
    if function is None:
        return NextRetry()
    answer = _answer(function, function(_json.read(primary), failed), NextRetry, "NextRetry(…) or None")
    return answer or NextRetry()


def validate(primary: str) -> list[Problem]:
    """Returns what is wrong with a primary. A controller without such a function finds nothing wrong."""
    function = find(Interface.VALIDATOR, _controller())
    if function is None:
        return []
    answer = function(_json.read(primary))
    if answer is None:
        return []
    single = isinstance(answer, (str, Problem))
    if not single and (not isinstance(answer, Sequence) or isinstance(answer, bytes)):
        raise TypeError(f"{function.place} returns {answer!r}, not a list of texts or Problem(…), or None")
    found = [one if isinstance(one, Problem) else Problem(one) for one in ([answer] if single else answer)]
    for problem in found:
        if not isinstance(problem.message, str) or not isinstance(problem.field, (str, type(None))):
            raise TypeError(f"{function.place} returns {problem!r}, whose message is no text, or whose field is none")
    return [Problem(printable(problem.message), _printable(problem.field)) for problem in found]


def initialize(primary: str) -> None:
    """Prepares a run. A controller without such a function has nothing to prepare."""
    function = find(Interface.INITIALIZER, _controller())
    if function is None:
        return
    answer = function(_json.read(primary))
    if answer is not None:
        raise TypeError(f"{function.place} returns {answer!r}, not None; `memo.run` hands values to the calls that follow")


def desired(name: str, primary: str) -> str:
    """Returns what a dependent should be."""
    function = get(Interface.DEPENDENT, _controller(), name)
    return _json.write_object(function(_json.read(primary)), f"what {function.place} returns")


def desired_set(name: str, primary: str) -> list[str]:
    """Returns the objects of which a bulk dependent should consist."""
    function = get(Interface.BULK, _controller(), name)
    objects = function(_json.read(primary))
    if not isinstance(objects, Sequence) or isinstance(objects, (str, bytes)):
        raise TypeError(f"{function.place} returns {objects!r}, not a list of objects")
    return [_json.write_object(one, f"an object of {function.place}") for one in objects]


def create(name: str, desired: str, primary: str) -> tuple[str, str | None]:
    """Creates a thing outside of the cluster; returns it, and the object that remembers its id."""
    function = get(Interface.CREATE, _controller(), name)
    answer = function(_json.read(desired), _json.read(primary))
    created = answer if isinstance(answer, Created) else Created(answer)
    thing = _json.write_object(created.thing, f"the thing that {function.place} returns")
    state = None if created.state is None else _json.write_object(created.state, f"the state that {function.place} returns")
    return thing, state


def update(name: str, actual: str, desired: str, primary: str) -> str:
    """Makes a thing outside of the cluster as desired, and returns it."""
    function = get(Interface.UPDATE, _controller(), name)
    answer = function(_json.read(actual), _json.read(desired), _json.read(primary))
    return _json.write_object(answer, f"what {function.place} returns")


def remove(name: str, actual: str, primary: str) -> None:
    """Removes a thing outside of the cluster."""
    function = get(Interface.REMOVE, _controller(), name)
    answer = function(_json.read(actual), _json.read(primary))
    if answer is not None:
        raise TypeError(f"{function.place} returns {answer!r}, not None")


def match(name: str, actual: str, desired: str, primary: str) -> str | None:
    """Returns what differs, or `None`."""
    function = get(Interface.MATCHER, _controller(), name)
    answer = function(_json.read(actual), _json.read(desired), _json.read(primary))
    if isinstance(answer, bool):
        return None if answer else "it says so"
    answer = _answer(function, answer, str, "True, None or what differs, a str")
    # As a list of what differs that is joined, and empty.
    return _printable(answer or None)


def is_met(name: str, dependent: str, primary: str) -> Met:
    """Returns whether a condition is met."""
    function = get(Interface.CONDITION, _controller(), name)
    answer = function(_json.read(primary), dependent)
    if isinstance(answer, bool):
        return Met(answer)
    if not isinstance(answer, Met):
        raise TypeError(f"{function.place} returns {answer!r}, not a bool or a Met(…)")
    return answer


def poll(name: str) -> list[tuple[str | None, str, list[str]]]:
    """Returns things of all primaries: namespace and name of each, and its things."""
    function = get(Interface.POLLER, _controller(), name)
    answer = function()
    if not isinstance(answer, Mapping):
        raise TypeError(f"{function.place} returns {answer!r}, not a dict of lists by primary")
    return [(*_primary(function, key), _things(function, things)) for key, things in answer.items()]


def poll_one(name: str, primary: str) -> tuple[list[str], Duration | None]:
    """Returns things of one primary, and when they are read again."""
    function = get(Interface.RESOURCE_POLLER, _controller(), name)
    answer = function(_json.read(primary))
    if isinstance(answer, Things):
        return _things(function, () if answer.things is None else answer.things), answer.again
    return _things(function, () if answer is None else answer), None


def receive(name: str, request: Request) -> Answer:
    """Returns what a request says, and what it is answered with."""
    function = get(Interface.INBOUND, _controller(), name)
    answer = function(request)
    if answer is None:
        answer = Received()
    if not isinstance(answer, Received):
        raise TypeError(f"{function.place} returns {answer!r}, not Received(…) or None")
    status = 202 if answer.status is None else answer.status
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise TypeError(f"{function.place} returns the status {status!r}, not one from 200 to 599")
    text = "" if answer.text is None else answer.text
    if not isinstance(text, str):
        raise TypeError(f"{function.place} returns the text {text!r}, not a str")
    return Answer(status, printable(text), [_told(function, told) for told in answer.events or ()])


class Answer(NamedTuple):
    """What a request is answered with, and what it says: namespace and name of each primary, a thing as JSON, and an id."""

    status: int
    text: str
    events: list[tuple[str | None, str, str | None, str | None]]


def _told(function: Registered, told: Any) -> tuple[str | None, str, str | None, str | None]:
    if not isinstance(told, Told):
        raise TypeError(f"{function.place} returns {told!r} among what is told, not Told(…)")
    if not isinstance(told.name, str) or not (told.namespace is None or isinstance(told.namespace, str)):
        raise TypeError(f"{function.place} tells of the primary {told.name!r} in {told.namespace!r}, not of a name in a namespace or None")
    if isinstance(told.gone, bool) or not (told.gone is None or isinstance(told.gone, (str, int))):
        raise TypeError(f"{function.place} says that {told.gone!r} is gone, not an id")
    if told.present is not None and told.gone is not None:
        raise TypeError(f"{function.place} says of {told.name} that something is present and gone")
    present = None if told.present is None else _json.write(told.present, f"what {function.place} returns")
    return namespace_of(told.namespace), printable(told.name), present, None if told.gone is None else printable(str(told.gone))


def accepts(name: str, change: Change) -> bool:
    """Returns whether a change matters."""
    function = get(Interface.FILTER, _controller(), name)
    answer = function(change)
    if not isinstance(answer, bool):
        raise TypeError(f"{function.place} returns {answer!r}, not a bool")
    return answer


def to_primaries(name: str, secondary: str) -> list[tuple[str | None, str]]:
    """Returns the primaries of a secondary: namespace and name of each."""
    function = get(Interface.MAPPER, _controller(), name)
    return _keys(function, function(_json.read(secondary)))


def to_secondaries(name: str, primary: str) -> list[tuple[str | None, str]]:
    """Returns the secondaries of a primary: namespace and name of each."""
    function = get(Interface.SECONDARY_MAPPER, _controller(), name)
    return _keys(function, function(_json.read(primary)))


def _keys(function: Registered, keys: Any) -> list[tuple[str | None, str]]:
    if keys is None:
        return []
    if not isinstance(keys, (Sequence, Set)) or isinstance(keys, (str, bytes)):
        raise TypeError(f"{function.place} returns {keys!r}, not a list of names")
    return [_key(function, key) for key in keys]


def _key(function: Registered, key: Any) -> tuple[str | None, str]:
    if isinstance(key, str):
        namespace, slash, name = printable(key).partition("/")
        return (namespace_of(namespace), name) if slash else (None, namespace)
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], str) and isinstance(key[0], (str, type(None))):
        return namespace_of(key[0]), printable(key[1])
    raise TypeError(f'{function.place} returns {key!r}, which is neither "name", "namespace/name" nor (namespace, name)')


def _primary(function: Registered, key: Any) -> tuple[str | None, str]:
    if isinstance(key, str):
        return None, printable(key)
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], str) and isinstance(key[0], (str, type(None))):
        return namespace_of(key[0]), printable(key[1])
    raise TypeError(f"{function.place} returns things of {key!r}, which is neither (namespace, name) nor a name")


def _things(function: Registered, things: Any) -> list[str]:
    if not isinstance(things, Sequence) or isinstance(things, (str, bytes)):
        raise TypeError(f"{function.place} returns {things!r}, not a list of things")
    return [_json.write(thing, f"a thing of {function.place}") for thing in things]


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)


def _answer(function: Registered, answer: Any, type: type[Answer], wanted: str) -> Answer | None:
    if answer is None or isinstance(answer, type):
        return answer
    raise TypeError(f"{function.place} returns {answer!r}, not {wanted}")


def _controller() -> str:
    run = daemon().run()
    if run is not None:
        return run.controller
    # Validators, pollers, receivers, filters and mappers belong to no run.
    name: str = _json.read(daemon().settings()).get("controller", {}).get("name", "")
    return name
