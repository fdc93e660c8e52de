"""Writes to the cluster, beyond what the workflow and an `Update` do.

    operations.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theme", "namespace": "web"}})
    operations.merge_patch(page, {"metadata": {"labels": {"checked": "yes"}}})

Each function returns the object as it is after the write; the caches have it too by then. What is refused raises a `CallError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from capstan import _json
from capstan._daemon import daemon
from capstan._json import Object
from capstan._words import Checked, namespace_of, one_of, optional_text, text

if TYPE_CHECKING:
    from typing_extensions import Unpack

Mode = Literal["usual", "match-and-filter", "optimistic", "cache-only", "force-filter", "plain"]
"""How a write is treated.

usual: `optimistic` and compared for `update`, `force-filter` for `create`, otherwise `match-and-filter`. match-and-filter: not written
if it matches; its event causes no run. optimistic: a newer version than the given one is a `conflict`; its event causes no run.
cache-only: the caches get the answer; its event causes a run. force-filter: written in any case; its event causes no run. plain: as from
any client, caches not involved; the one mode for kinds that no source watches. To another object of the primary's kind the event of a
write is news in any mode: it causes a run of that object.
"""

Comparison = Literal["by-verb", "applied", "generic", "status-only", "equality"]
"""How objects are compared: as fits the verb; by our managed fields; by differences, where additions are tolerated; the same under
`status` only; everything must be equal."""

Propagation = Literal["usual", "background", "foreground", "orphan"]
"""What becomes of the objects that a deleted one owns: what is usual for the kind; deleted afterwards; deleted before; they stay."""

Verb = Literal[
    "create", "apply", "force-apply", "update", "edit", "json-patch", "merge-patch", "remove", "add-finalizer", "remove-finalizer"
]
"""What can be asked for."""


@dataclass(frozen=True)
class ObjectRef(Checked):
    """An object of any kind, by its name. A whole object will do wherever one is asked for."""

    api_version: str
    """Group and version: `v1`, `apps/v1`."""
    kind: str
    """The kind in singular."""
    name: str
    """The name."""
    namespace: str | None = None
    """The namespace; `None` for a cluster-scoped object."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._become("namespace", namespace_of(self.namespace))

    @classmethod
    def of(cls, target: ObjectRef | Object) -> ObjectRef:
        """Returns the reference to an object that has apiVersion, kind and metadata.name."""
        if isinstance(target, ObjectRef):
            return target
        try:
            metadata = target["metadata"]
            return cls(target["apiVersion"], target["kind"], metadata["name"], metadata.get("namespace"))
        except KeyError as error:
            raise ValueError(f"an object needs apiVersion, kind and metadata.name, and this one has no {error.args[0]}") from None


class WriteOptions(TypedDict, total=False):
    """The fine print of a write."""

    mode: Mode
    """How it is treated."""
    compare_by: Comparison | None
    """How it is compared; if it matches it is not written."""
    subresource: str | None
    """The subresource to write, such as `status` or `scale`."""
    source: str | None
    """The source that it concerns, if several watch the kind."""
    actual: Object | None
    """An object to compare with instead of the cached one."""


@dataclass(frozen=True)
class RemoveOptions(Checked):
    """The fine print of a deletion."""

    propagation: Propagation = "usual"
    uid: str | None = None
    resource_version: str | None = None
    grace_seconds: int | None = None


def create(object: Object, **options: Unpack[WriteOptions]) -> Object:
    """Creates an object. A `conflict` if it exists."""
    return _write("create", object, options)


def apply(object: Object, **options: Unpack[WriteOptions]) -> Object:
    """Applies an object: server-side apply with the controller's field manager. Sent exactly as given: a primary that is applied without
    its finalizer loses it. Forced if the object is the primary's; of any other, fields that another manager has are a `conflict`."""
    return _write("apply", object, options)


def force_apply(object: Object, **options: Unpack[WriteOptions]) -> Object:
    """Applies an object like `apply`, but forced, whosever it is: takes fields from other managers."""
    return _write("force-apply", object, options)


def update(object: Object, **options: Unpack[WriteOptions]) -> Object:
    """Replaces an object."""
    return _write("update", object, options)


def edit(object: Object, **options: Unpack[WriteOptions]) -> Object:
    """Sends the JSON patch that leads from the cached object, or `actual`, to this one; nothing if it is empty."""
    return _write("edit", object, options)


def json_patch(target: ObjectRef | Object, patch: Sequence[Object], **options: Unpack[WriteOptions]) -> Object:
    """Sends a JSON patch (RFC 6902): a list of operations."""
    return _patch("json-patch", target, patch, options)


def merge_patch(target: ObjectRef | Object, patch: Object, **options: Unpack[WriteOptions]) -> Object:
    """Sends a JSON merge patch (RFC 7386): `None` removes a field."""
    return _patch("merge-patch", target, patch, options)


def remove(
    target: ObjectRef | Object,
    *,
    propagation: Propagation = "usual",
    uid: str | None = None,
    resource_version: str | None = None,
    grace_seconds: int | None = None,
) -> None:
    """Deletes an object; with `uid` or `resource_version` only that one. It is a success if it is gone already."""
    propagation = propagation or "usual"
    one_of(Propagation, propagation, "propagation")
    daemon().remove(ObjectRef.of(target), RemoveOptions(propagation, uid, resource_version, grace_seconds))


def add_finalizer(finalizer: str | None = None) -> Object:
    """Adds a finalizer to the primary of the run; without a name the controller's, which the daemon adds by itself where it is needed. With
    `triggerOnAllEvents` that is the one that the manifest names; any other takes the grants `patch` and `delete` on the primary's kind."""
    return _object(daemon().finalizer("add-finalizer", optional_text(finalizer, "a finalizer")))


def remove_finalizer(finalizer: str | None = None) -> Object:
    """Removes a finalizer from the primary of the run; without a name the controller's. Returns the last known primary if it is gone."""
    return _object(daemon().finalizer("remove-finalizer", optional_text(finalizer, "a finalizer")))


def compare(actual: Object, desired: Object, *, by: Comparison = "generic", ignore: Sequence[str] = ()) -> str | None:
    """Compares without writing: `None` if they match, otherwise what differs. Differences under the JSON pointers `ignore` do not count.

    That is what a function with `@match` returns, so it may end with it."""
    by = by or "generic"
    one_of(Comparison, by, "comparison")
    documents = _json.write_object(actual, "actual"), _json.write_object(desired, "desired")
    return daemon().compare(by, *documents, [text(pointer, "a JSON pointer") for pointer in ignore or ()])


def _write(verb: Verb, object: Object, options: WriteOptions) -> Object:
    return _object(daemon().write(verb, _json.write_object(object, "the object"), _checked(options)))


def _patch(verb: Verb, target: ObjectRef | Object, patch: Any, options: WriteOptions) -> Object:
    return _object(daemon().patch(verb, ObjectRef.of(target), _json.write(patch, "the patch"), _checked(options)))


def _checked(options: WriteOptions) -> WriteOptions:
    unknown = sorted(set(options) - set(WriteOptions.__annotations__))
    if unknown:
        raise TypeError(f"a write has no option {unknown[0]!r}; there are: {', '.join(WriteOptions.__annotations__)}")
    mode = options.get("mode") or "usual"
    one_of(Mode, mode, "mode")
    if (comparison := options.get("compare_by")) is not None:
        one_of(Comparison, comparison, "comparison")
    texts = {name: optional_text(options[name], name) for name in ("subresource", "source") if name in options}  # type: ignore[literal-required]
    return cast(WriteOptions, {**options, **texts, "mode": mode}) if options else options


def _object(text: str) -> Object:
    written: Object = _json.read(text)
    return written
