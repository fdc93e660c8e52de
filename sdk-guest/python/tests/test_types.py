"""What the classes of an author say, and how they are read and written."""

import json
import unittest
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

from support import Registering

from capstan import Failure, Metadata, Retry, StatusCondition, Update, _json, _schema, reconcile, system, types
from capstan._typed import Name, spelled
from capstan.errors import DependentFailure
from capstan.testing import Run
from capstan.types import Column, Limits, Resource, Rule, resource, rules


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Port(TypedDict):
    containerPort: int


@rules(Rule("self.low <= self.high", "low is above high"))
@dataclass
class Range:
    """From low to high."""

    low: int = 0
    high: int = 9


@dataclass
class Spec:
    title: Annotated[str, Limits(min_length=1, pattern="^[a-z]+$")]
    """What is shown."""
    html_text: str
    api: Annotated[Optional[str], Name("apiURL")] = None
    color: Color = Color.RED
    sizes: list[Range] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    port: Optional[Port] = None
    days: "list[Literal['mon', 'sun']] | None" = None
    since: Optional[datetime] = None
    any: Any = None
    tags: Optional[set[str]] = None
    number: Optional[Union[int, str]] = None


@dataclass
class Status:
    are_we_good: bool
    error_message: Optional[str] = None
    conditions: Optional[list[StatusCondition]] = None


@dataclass
class Page:
    metadata: Metadata
    spec: Spec
    status: Optional[Status] = None


PAGE = {"metadata": {"name": "hello", "resourceVersion": "7"}, "spec": {"title": "a", "htmlText": "b", "color": "blue", "sizes": [{"low": 3}]}}


def of(*fields: Any) -> dict[str, Any]:
    """Returns what the first of these types says."""
    return json.loads(_schema.said([Resource(one, "sample.dev/v1", "Page") for one in fields]))[0]["schema"]


class Types(Registering):
    def test_a_class_says_its_fields_with_limits_defaults_and_texts(self) -> None:
        said = of(Page)
        self.assertEqual(said["required"], ["spec"])
        spec = said["$defs"]["Spec"]
        self.assertEqual(spec["required"], ["title", "htmlText"])
        expected = {
            "title": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$", "description": "What is shown."},
            "htmlText": {"type": "string"},
            "apiURL": {"type": "string"},
            "color": {"enum": ["red", "blue"], "default": "red"},
            "sizes": {"type": "array", "items": {"$ref": "#/$defs/Range"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "port": {"$ref": "#/$defs/Port"},
            "days": {"type": "array", "items": {"enum": ["mon", "sun"]}},
            "since": {"type": "string", "format": "date-time"},
            "any": {},
            "tags": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
            "number": {"anyOf": [{"type": "integer", "format": "int64"}, {"type": "string"}]},
        }
        self.assertEqual(spec["properties"], expected)
        sized = said["$defs"]["Range"]
        self.assertEqual(sized["description"], "From low to high.")
        self.assertEqual(sized["x-kubernetes-validations"], [{"rule": "self.low <= self.high", "message": "low is above high"}])
        self.assertEqual(said["$defs"]["Port"]["required"], ["containerPort"])
        self.assertEqual(said["$defs"]["StatusCondition"]["required"], ["type", "status"])

    def test_a_decorator_says_the_rest(self) -> None:
        before = len(types.resources)
        ready = Column("Size", ".spec.size", priority=1)
        resource("sample.dev/v1", kind="WebPage", short_names=["wp"], columns=[ready], conditions=True)(Page)
        found = types.resources.pop()
        self.assertEqual(len(types.resources), before)
        said = {"scope": "Namespaced", "shortNames": ["wp"], "columns": [{"name": "Size", "jsonPath": ".spec.size", "priority": 1}], "conditions": True}
        self.assertEqual((found.kind, found.facts), ("WebPage", said))

    def test_a_type_of_which_there_is_no_schema_is_named_with_its_field(self) -> None:
        @dataclass
        class Odd:
            many: Optional[dict[int, str]] = None

        @dataclass
        class Odder:
            one: Optional[complex] = None

        for cls, expected in ((Odd, "Odd.many has keys that are no texts"), (Odder, "Odder.one is complex, of which there is no schema")):
            with self.assertRaisesRegex(_schema.TypesError, expected):
                of(cls)

    def test_a_function_is_given_what_its_argument_says(self) -> None:
        given = []

        @reconcile
        def publish(page: Page) -> Update:
            given.append(page)
            return Update(status=Status(are_we_good=page.spec.color is Color.BLUE))

        update = Run(PAGE).reconcile()
        self.assertEqual(update.document(), '{"status":{"areWeGood":true}}')
        self.assertEqual(given[0].metadata, Metadata("hello", resource_version="7"))
        self.assertEqual((given[0].spec.html_text, given[0].spec.sizes, given[0].status), ("b", [Range(3, 9)], None))
        with self.assertRaisesRegex(TypeError, "spec.htmlText is missing, which Spec needs"):
            Run({"metadata": {}, "spec": {"title": "a"}}).reconcile()

    def test_null_is_the_same_as_nothing_where_a_field_may_be_left_out(self) -> None:
        seen = []

        @reconcile
        def publish(spec: Spec) -> None:
            seen.append(spec)

        nothing = {"apiURL": None, "color": None, "sizes": None, "labels": None, "port": None, "any": None}
        Run().reconcile({"title": "a", "html_text": "b", "htmlText": "b", **nothing})
        self.assertEqual(seen, [Spec("a", "b")])
        with self.assertRaisesRegex(TypeError, "htmlText is missing, which Spec needs"):
            Run().reconcile({"title": "a", "htmlText": None})

    def test_an_argument_that_says_nothing_is_json(self) -> None:
        given = []

        @reconcile
        def publish(page: "Unknown") -> None:  # noqa: F821
            given.append(page)

        Run(PAGE).reconcile()
        self.assertEqual(given, [PAGE])

    def test_names_are_spelled_as_in_kubernetes(self) -> None:
        for name, expected in (("a", "a"), ("are_we_good", "areWeGood"), ("from_", "from"), ("areWeGood", "areWeGood")):
            self.assertEqual(spelled(name), expected)

    def test_what_is_told_of_failures_and_times_is_fit_for_a_status(self) -> None:
        with Run(now=datetime(2026, 1, 31, 12, 0, 0, 931824, timezone.utc)):
            self.assertEqual(f"{system.now()} {system.timestamp()}", "2026-01-31T12:00:00Z 2026-01-31T12:00:00Z")
        failure = Failure("workflow", "2 of 3 failed", Retry(1), [DependentFailure("web", "no")])
        self.assertEqual((str(failure), str(failure.dependents[0])), ("2 of 3 failed", "web: no"))
        written = _json.read(_json.write({"at": datetime(2026, 1, 31, 12, 0, 0, 5, timezone.utc), "failure": failure}, "it"))
        expected = {
            "origin": "workflow",
            "message": "2 of 3 failed",
            "retry": {"attempt": 1, "last": False},
            "dependents": [{"name": "web", "message": "no"}],
        }
        self.assertEqual(written, {"at": "2026-01-31T12:00:00Z", "failure": expected})


if __name__ == "__main__":
    unittest.main()
