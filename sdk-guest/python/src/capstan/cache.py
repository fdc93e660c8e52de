"""Reads from the daemon's caches: no request is sent, and own writes are visible at once.

deployment = secondary("deployment")                    # the one that belongs to the primary
for pod in cache.source("pods").related(labels="app=web"):
    ...
theme = cache.kind("v1", "ConfigMap").named("dark", namespace="themes")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from capstan import _json
from capstan._daemon import daemon
from capstan._json import Object
from capstan._words import Checked, namespace_of, text

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Filters(TypedDict, total=False):
    """Which objects of a selection are of interest, and how much of them."""

    labels: str | None
    """Only those that this label selector accepts, written as for kubectl."""
    fields: Sequence[str]
    """Return only these fields, as JSON pointers, beside apiVersion, kind, namespace and name. Large answers cost time."""
    newest_only: bool
    """Where several sources hold an object, return its newest version only."""


def secondary(source: str) -> Object | None:
    """Returns the one object of a source that belongs to the primary; `None` if there is none. The source of a dependent has the
    dependent's name. Raises a `CallError` with the reason `ambiguous` if there are several."""
    return Source(source).one()


def secondaries(source: str, **filters: Unpack[Filters]) -> list[Object]:
    """Returns the objects of a source that belong to the primary."""
    return list(Source(source).related(**filters))


def source(name: str) -> Source:
    """One source. The source of a dependent has the dependent's name."""
    return Source(name)


def kind(api_version: str, kind: str) -> Kind:
    """All sources of a kind: `kind("apps/v1", "Deployment")`."""
    return Kind(api_version, kind)


def primaries() -> Primaries:
    """The primaries of this controller."""
    return Primaries()


class Place:
    """Where to look."""

    def one(self) -> Object | None:
        """Returns the one object that belongs to the primary; `None` if there is none. Raises a `CallError` if there are several, or if
        no source watches the kind."""
        return _read(daemon().find_one(self))

    def named(self, name: str, namespace: str | None = None) -> Object | None:
        """Returns an object by its name, whether it belongs to the primary or not. A cluster-scoped object has no namespace."""
        return _read(daemon().find_named(self, namespace_of(namespace), text(name, "the name")))

    def related(self, **filters: Unpack[Filters]) -> Query:
        """Selects the objects that belong to the primary."""
        return Query(self, Related(), **filters)

    def in_namespace(self, namespace: str, **filters: Unpack[Filters]) -> Query:
        """Selects all objects of one namespace, whether they belong to the primary or not."""
        return Query(self, Namespaced(namespace), **filters)

    def everywhere(self, **filters: Unpack[Filters]) -> Query:
        """Selects all objects."""
        return Query(self, Everywhere(), **filters)

    def indexed(self, index: str, key: str, **filters: Unpack[Filters]) -> Query:
        """Selects the objects under a key of an index of the manifest."""
        return Query(self, Indexed(index, key), **filters)


@dataclass(frozen=True)
class Source(Checked, Place):
    """One source."""

    name: str


@dataclass(frozen=True)
class Kind(Checked, Place):
    """All sources of a kind."""

    api_version: str
    kind: str


@dataclass(frozen=True)
class Primaries(Place):
    """The primaries of this controller."""


@dataclass(frozen=True)
class Related:
    """Those that belong to the primary."""


@dataclass(frozen=True)
class Namespaced(Checked):
    """All in one namespace."""

    namespace: str


@dataclass(frozen=True)
class Everywhere:
    """All."""


@dataclass(frozen=True)
class Indexed(Checked):
    """Those under a key of an index."""

    index: str
    key: str


@dataclass(frozen=True)
class Page:
    """Part of a long answer."""

    items: list[Object]
    """The objects, ordered by namespace and name."""
    next: str | None
    """Where the next page begins; `None` if this was the last."""


@dataclass(frozen=True)
class Query(Checked):
    """A question for many objects. To go through it asks for all of them, page by page, ordered by namespace and name."""

    place: Place
    selection: Related | Namespaced | Everywhere | Indexed
    labels: str | None = None
    fields: Sequence[str] = ()
    newest_only: bool = False
    limit: int | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._become("fields", tuple(text(pointer, "a field") for pointer in self.fields or ()))
        self._become("newest_only", bool(self.newest_only))
        for pointer in self.fields:
            if not pointer.startswith("/"):
                raise ValueError(f"a field is a JSON pointer such as '/spec/html', not {pointer!r}")

    def __iter__(self) -> Iterator[Object]:
        page = self.page()
        while True:
            yield from page.items
            if page.next is None:
                return
            page = self.page(after=page.next)

    def page(self, limit: int | None = None, after: str | None = None) -> Page:
        """Returns at most `limit` objects, from where a page before has ended."""
        items, following = daemon().find_all(replace(self, limit=limit, after=after))
        return Page([_json.read(item) for item in items], following)


def _read(text: str | None) -> Object | None:
    return None if text is None else _json.read(text)
