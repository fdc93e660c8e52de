"""Says what an author's types are: the custom resource, its fields with their limits, the columns of `kubectl get`.

    from dataclasses import dataclass
    from typing import Annotated

    from capstan import Metadata, reconcile
    from capstan.types import Column, Limits, resource

    @dataclass
    class Spec:
        name: Annotated[str, Limits(min_length=1, max_length=63)]
        \"\"\"Who is greeted.\"\"\"
        greeting: str = "Hello, {name}!"
        \"\"\"What is said, with {name} in it.\"\"\"

    @dataclass
    class Status:
        text: str | None = None

    @resource("example.com/v1alpha1", columns=[Column("Text", ".status.text")], conditions=True)
    @dataclass
    class Greeting:
        spec: Spec
        metadata: Metadata
        status: Status | None = None

    @reconcile
    def publish(greeting: Greeting):
        ...

A function whose argument is of such a type, or of any other dataclass, is given one. Fields are spelled as in Kubernetes: `are_we_good` is `areWeGood` there.
`capstan crd` writes the definition, by `python -m capstan types app.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from capstan._json import Object
from capstan._typed import Name

__all__ = ["Column", "Limits", "Metadata", "Name", "Resource", "Rule", "Scope", "resource", "rules"]

Class = TypeVar("Class", bound=type)

Scope = Literal["Namespaced", "Cluster"]
"""Where objects of a kind live."""


@dataclass
class Metadata:
    """The `metadata` of an object, as far as a reconciler usually needs it."""

    name: str = ""
    """The name."""
    namespace: str | None = None
    """The namespace; `None` for a cluster-scoped object."""
    labels: dict[str, str] = field(default_factory=dict)
    """The labels."""
    annotations: dict[str, str] = field(default_factory=dict)
    """The annotations."""
    uid: str | None = None
    """The id that no other object ever has."""
    generation: int | None = None
    """Grows with each change of the spec."""
    resource_version: str | None = None
    """Changes with each write."""
    creation_timestamp: str | None = None
    """When the object was made, in RFC 3339."""
    deletion_timestamp: str | None = None
    """When its deletion was asked for, in RFC 3339."""
    finalizers: list[str] = field(default_factory=list)
    """Who has to tidy up before it goes."""


@dataclass(frozen=True)
class Rule:
    """A rule in CEL that the API server checks: an entry of `x-kubernetes-validations`."""

    rule: str
    """The expression; `self` is the value."""
    message: str | None = None
    """What is said if it is false."""


@dataclass(frozen=True)
class Limits:
    """What the API server checks of a field, beside its type; written as `Annotated[str, Limits(max_length=63)]`."""

    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    rules: Sequence[Rule] = ()
    """Rules in CEL."""
    list_type: Literal["atomic", "set", "map"] | None = None
    """How lists are merged when several write them."""
    list_map_keys: Sequence[str] = ()
    """The fields by which the entries of a list with `list_type="map"` are told apart."""
    default: Any = None
    """What the API server fills in, where the default of the field itself is another, or none."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`. Behind all columns stands the age."""

    name: str
    """Its head."""
    json_path: str
    """Where its value is: `.status.text`."""
    type: str | None = None
    """The type; without it that of the field."""
    priority: int | None = None
    """1 and more: shown by `-o wide` only."""
    description: str | None = None
    """What it shows."""
    format: str | None = None
    """How it is shown, as in OpenAPI."""


@dataclass(frozen=True)
class Resource:
    """A custom resource, as its type says it."""

    type: type
    """The class."""
    api_version: str
    kind: str
    facts: Object = field(default_factory=dict)
    """The rest, as `capstan crd` reads it."""


RULES = "__capstan_rules__"
"""Where a class has the rules that are checked of all of it."""

resources: list[Resource] = []
"""All resources, in the order of their definition."""


def resource(
    api_version: str,
    *,
    kind: str | None = None,
    plural: str | None = None,
    scope: Scope = "Namespaced",
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    columns: Sequence[Column] = (),
    conditions: bool = False,
    storage: bool = False,
    scale: Mapping[str, str] | None = None,
    selectable_fields: Sequence[str] = (),
) -> Callable[[Class], Class]:
    """Marks the class of a custom resource, a dataclass or a `TypedDict` with `spec` and, if it has one, `status`. The kind is the name of the class
    unless another is given. `conditions`: the status has `conditions` although its type does not, because the daemon keeps them (`statusConditions` in
    the manifest). Of several versions of a kind, one is the one that is stored: `storage=True`."""

    def mark(cls: Class) -> Class:
        named = kind or cls.__name__
        facts: Object = {
            "plural": plural,
            "scope": scope,
            "shortNames": list(short_names),
            "categories": list(categories),
            "columns": [_given(column) for column in columns],
            "conditions": conditions,
            "storage": storage,
            "scale": dict(scale) if scale else None,
            "selectableFields": list(selectable_fields),
        }
        resources.append(Resource(cls, api_version, named, {name: value for name, value in facts.items() if value}))
        return cls

    return mark


def rules(*rules: Rule) -> Callable[[Class], Class]:
    """Says what the API server checks of a class as a whole: `@rules(Rule("self.minimum <= self.maximum", "…"))`."""

    def mark(cls: Class) -> Class:
        setattr(cls, RULES, rules)
        return cls

    return mark


def _given(column: Column) -> Object:
    given = dataclasses.asdict(column)
    given["jsonPath"] = given.pop("json_path")
    return {name: value for name, value in given.items() if value is not None}
