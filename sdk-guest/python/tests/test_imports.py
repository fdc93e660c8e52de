"""What the daemon is asked, in the types of the contract, and what becomes of its answers."""

from __future__ import annotations

import re
import sys
import unittest
from datetime import datetime, timezone
from typing import Any

from support import Bound

from capstan import (
    CallError,
    ObjectRef,
    Retry,
    RunInfo,
    build,
    cache,
    config,
    context,
    debug,
    errors,
    log,
    memo,
    operations,
    recorder,
    secondary,
    system,
    workflow,
)
from capstan._daemon import answered_by
from capstan._words import words
from capstan.workflow import ConditionOutcome, NodeResult, ObjectResult, WorkflowResult

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "web"}}
TEXT = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"web"}}'


class Imports(Bound):
    def setUp(self) -> None:
        super().setUp()
        self.wit("imports.types")
        from capstan._wit.imports import Imports

        answered = answered_by(Imports())
        answered.__enter__()
        self.addCleanup(answered.__exit__, None, None, None)
        self.types = self.wit("imports.types")
        self.reference = self.types.ObjectRef("v1", "ConfigMap", "web", "a")

    def test_the_run_is_told_as_it_is(self) -> None:
        wit = self.wit("imports.context")
        self.answer("context", "run", return_value=wit.RunInfo("pages", self.types.RetryInfo(2, True), True, False))
        self.answer("context", "next_imminent", return_value=True)
        self.answer("context", "time_left_ms", return_value=1500)
        self.answer("context", "settings", return_value='{"daemon":{}}')
        self.answer("config", "get", return_value='{"title":"x"}')
        self.assertEqual(context.run(), RunInfo("pages", Retry(2, True), True, False))
        self.assertEqual((context.retry(), context.next_imminent(), context.time_left()), (Retry(2, True), True, 1.5))
        self.assertEqual((context.settings(), config.get()), ({"daemon": {}}, {"title": "x"}))
        self.answer("context", "run", return_value=None)
        self.assertEqual((context.run(), context.retry()), (None, None))

    def test_questions_for_many_are_asked_page_by_page(self) -> None:
        wit = self.wit("imports.cache")
        pages = [self.types.Page(['{"a":1}'], "x"), self.types.Page(['{"a":2}'], None)]
        asked = self.answer("cache", "find_all", side_effect=pages)
        found = list(cache.source("pods").related(labels="app=web", fields=["/spec"], newest_only=True))
        self.assertEqual(found, [{"a": 1}, {"a": 2}])
        question = ("app=web", ["/spec"], True, None)
        self.assertEqual(
            [call.args[0] for call in asked.call_args_list],
            [wit.Query(wit.Place_Source("pods"), wit.Selection_Related(), *question, after) for after in (None, "x")],
        )

    def test_each_place_and_selection_has_its_case(self) -> None:
        wit = self.wit("imports.cache")
        asked = self.answer("cache", "find_all", return_value=self.types.Page([], None))
        table = [
            (cache.kind("v1", "Pod").in_namespace("a"), wit.Place_Kind(self.types.KindRef("v1", "Pod")), wit.Selection_Namespaced("a")),
            (cache.primaries().everywhere(), wit.Place_Primaries(), wit.Selection_Everywhere()),
            (cache.source("a").indexed("i", "k"), wit.Place_Source("a"), wit.Selection_Indexed(wit.IndexEntry("i", "k"))),
        ]
        for query, place, selection in table:
            query.page(limit=3)
            self.assertEqual(asked.call_args.args[0], wit.Query(place, selection, None, [], False, 3, None))

    def test_one_object_is_found_by_relation_or_name(self) -> None:
        wit = self.wit("imports.cache")
        one = self.answer("cache", "find_one", return_value=None)
        named = self.answer("cache", "find_named", return_value=TEXT)
        self.assertIsNone(secondary("a"))
        self.assertEqual(cache.source("b").named("n", namespace="s"), MAP)
        one.assert_called_once_with(wit.Place_Source("a"))
        named.assert_called_once_with(wit.Place_Source("b"), self.types.ObjectKey("s", "n"))

    def test_each_write_has_its_function(self) -> None:
        wit = self.wit("imports.operations")
        options = wit.WriteOptions(wit.WriteMode.CACHE_ONLY, wit.Comparison.STATUS_ONLY, "status", "a", "{}")
        for name in ("create", "apply", "force_apply", "update", "edit"):
            asked = self.answer("operations", name, return_value=TEXT)
            function = getattr(operations, name)
            self.assertEqual(function(MAP), MAP)
            function(MAP, mode="cache-only", compare_by="status-only", subresource="status", source="a", actual={})
            self.assertEqual([call.args for call in asked.call_args_list], [(TEXT, None), (TEXT, options)])
        for name, patch, text in (("json_patch", [{"op": "x"}], '[{"op":"x"}]'), ("merge_patch", {"a": None}, '{"a":null}')):
            asked = self.answer("operations", name, return_value=TEXT)
            self.assertEqual(getattr(operations, name)(MAP, patch), MAP)
            asked.assert_called_once_with(self.reference, text, None)
        for name in ("add_finalizer", "remove_finalizer"):
            asked = self.answer("operations", name, return_value=TEXT)
            self.assertEqual((getattr(operations, name)(), getattr(operations, name)("a/b")), (MAP, MAP))
            self.assertEqual([call.args for call in asked.call_args_list], [(None,), ("a/b",)])

    def test_a_deletion_and_a_comparison_are_asked_as_they_are(self) -> None:
        wit = self.wit("imports.operations")
        removed = self.answer("operations", "remove")
        operations.remove(ObjectRef("v1", "ConfigMap", "a", "web"), propagation="orphan", uid="u", resource_version="7", grace_seconds=3)
        removed.assert_called_once_with(self.reference, wit.RemoveOptions(wit.Propagation.ORPHAN, "u", "7", 3))
        results = [self.types.MatchResult_Differs("data"), self.types.MatchResult_Matches()]
        compared = self.answer("operations", "compare", side_effect=results)
        self.assertEqual(operations.compare({}, {}, by="applied", ignore=["/a"]), "data")
        self.assertIsNone(operations.compare({}, {}))
        self.assertEqual(compared.call_args_list[0].args, (wit.Comparison.APPLIED, "{}", "{}", ["/a"]))

    def test_what_became_of_a_workflow_is_in_our_types(self) -> None:
        wit = self.wit("imports.workflow")
        outcome = wit.ConditionOutcome(wit.ConditionRole.READY_POSTCONDITION, False, '{"a":1}')
        node = wit.NodeResult("pod", [wit.ObjectResult("web/pod", wit.Operation.CREATED)], [outcome], "no")
        result = wit.WorkflowResult([node], False)
        our_node = NodeResult("pod", [ObjectResult("web/pod", "created")], [ConditionOutcome("ready-postcondition", False, {"a": 1})], "no")
        for name in ("reconcile", "cleanup", "last_result"):
            asked = self.answer("workflow", name, return_value=result)
            ours = getattr(workflow, name)("preview")
            self.assertEqual(ours, WorkflowResult([our_node], False))
            self.assertEqual((ours["pod"], "pod" in ours, "x" in ours), (our_node, True, False))
            asked.assert_called_once_with("preview")
        for name in ("reconcile_dependent", "remove_dependent"):
            self.answer("workflow", name, return_value=node)
            self.assertEqual(getattr(workflow, name)("pod"), our_node)
        self.answer("workflow", "last_result", return_value=None)
        self.assertIsNone(workflow.last_result())

    def test_memos_have_three_lifetimes(self) -> None:
        wit = self.wit("imports.memo")
        got = self.answer("memo", "get", side_effect=['{"a":1}', None, None, "3"])
        put = self.answer("memo", "put")
        self.assertEqual((memo.run["a"], memo.primary.get("b", 7), "c" in memo.plugin, "d" in memo.run), ({"a": 1}, 7, False, True))
        lifetimes = [call.args[0] for call in got.call_args_list]
        self.assertEqual(lifetimes, [wit.Lifetime.RUN, wit.Lifetime.PRIMARY, wit.Lifetime.PLUGIN, wit.Lifetime.RUN])
        memo.primary["x"] = [1]
        del memo.primary["x"]
        self.assertEqual([call.args[1:] for call in put.call_args_list], [("x", "[1]"), ("x", None)])

    def test_lines_and_events_are_handed_over(self) -> None:
        write = self.answer("log", "write")
        debug("seen", page="a", n=2, half="\ud800")
        pairs = [self.types.Pair("page", "a"), self.types.Pair("n", "2"), self.types.Pair("half", "\ufffd")]
        write.assert_called_once_with(self.wit("imports.log").Level.DEBUG, "seen", pairs)
        wit, publish = self.wit("imports.recorder"), self.answer("recorder", "publish")
        recorder.warning("NoTheme", "later", key="k", labels={"a": "b"})
        labels = [self.types.Pair("a", "b")]
        publish.assert_called_once_with(wit.Event(wit.Severity.WARNING, "NoTheme", "later", "k", None, None, labels, []))

    def test_none_among_options_says_nothing(self) -> None:
        none: Any = None
        wit, publish = self.wit("imports.recorder"), self.answer("recorder", "publish")
        recorder.normal("A", "b", key=None, action=None, component=None, labels=none, annotations=none)
        publish.assert_called_once_with(wit.Event(wit.Severity.NORMAL, "A", "b", None, None, None, [], []))
        asked = self.answer("cache", "find_all", return_value=self.types.Page([], None))
        cache.source("a").related(labels=None, fields=none, newest_only=none).page()
        self.assertEqual((asked.call_args.args[0].fields, asked.call_args.args[0].newest_only), ([], False))
        wit, wrote = self.wit("imports.operations"), self.answer("operations", "apply", return_value="{}")
        operations.apply(MAP, mode=none, compare_by=None, subresource=None, source=None, actual=None)
        self.assertEqual(wrote.call_args.args[1], wit.WriteOptions(wit.WriteMode.USUAL, None, None, None, None))
        removed = self.answer("operations", "remove")
        operations.remove(MAP, propagation=none, uid=None, resource_version=None, grace_seconds=None)
        self.assertEqual(removed.call_args.args[1], wit.RemoveOptions(wit.Propagation.USUAL, None, None, None))
        self.answer("operations", "compare", return_value=self.types.MatchResult_Matches())
        self.assertIsNone(operations.compare(MAP, MAP, by=none, ignore=none))

    def test_half_a_character_is_handed_over_as_the_character_for_such(self) -> None:
        half, whole, key = "a\ud800", "a\ufffd", self.types.ObjectKey
        wit, publish = self.wit("imports.recorder"), self.answer("recorder", "publish")
        recorder.normal(half, half, key=half, labels={half: half}, annotations={half: half})
        pairs = [self.types.Pair(whole, whole)]
        publish.assert_called_once_with(wit.Event(wit.Severity.NORMAL, whole, whole, whole, None, None, pairs, pairs))
        found = self.answer("cache", "find_named", return_value=None)
        cache.kind(half, half).named(half, namespace=half)
        place = self.wit("imports.cache").Place_Kind(self.types.KindRef(whole, whole))
        found.assert_called_once_with(place, key(whole, whole))
        asked = self.answer("cache", "find_all", return_value=self.types.Page([], None))
        cache.source(half).indexed(half, half, labels=half, fields=["/" + half]).page(after=half)
        [question] = asked.call_args.args
        self.assertEqual((question.place.value, question.selection.value.index, question.selection.value.key), (whole, whole, whole))
        self.assertEqual((question.labels, question.fields, question.after), (whole, ["/" + whole], whole))
        wrote = self.answer("operations", "apply", return_value="{}")
        operations.apply({half: half}, subresource=half, source=half)
        document, options = wrote.call_args.args
        self.assertEqual((document, options.subresource, options.source), (f'{{"{whole}":"{whole}"}}', whole, whole))
        put = self.answer("memo", "put")
        memo.run[half] = half
        put.assert_called_once_with(self.wit("imports.memo").Lifetime.RUN, whole, f'"{whole}"')

    def test_time_and_chance_have_natural_types(self) -> None:
        self.answer("system", "now", return_value="2026-01-31T12:00:00Z")
        self.answer("system", "now_ms", return_value=1_769_860_800_500.0)
        self.answer("system", "uuid", return_value="u")
        chance = self.answer("system", "random_bytes", side_effect=bytes)
        self.assertEqual(system.now(), datetime(2026, 1, 31, 12, 0, 0, 500_000, timezone.utc))
        self.assertEqual((system.timestamp(), system.uuid(), len(system.random_bytes(5000))), ("2026-01-31T12:00:00Z", "u", 5000))
        self.assertEqual([call.args for call in chance.call_args_list], [(4096,), (904,)])

    def test_a_refusal_is_an_error_with_a_reason(self) -> None:
        refused = sys.modules["componentize_py_types"].Err(self.types.CallError(self.types.CallReason.CONFLICT, 409, "too late"))
        self.answer("operations", "create", side_effect=refused)
        with self.assertRaises(CallError) as raised:
            operations.create(MAP)
        error = raised.exception
        self.assertEqual((error.reason, error.code, str(error)), ("conflict", 409, "too late"))
        unasked = sys.modules["componentize_py_types"].Err(self.types.CallError(self.types.CallReason.DENIED, 0, "no"))
        self.answer("operations", "create", side_effect=unasked)
        with self.assertRaises(CallError) as raised:
            operations.create(MAP)
        self.assertEqual(raised.exception.code, None)

    def test_what_would_end_the_instance_is_refused_before(self) -> None:
        wrong: Any = None
        table = [
            (lambda: secondary(wrong), "Source.name is a str, not None"),
            (lambda: cache.source("a").named(wrong), "the name is a str, not None"),
            (lambda: cache.source("a").related(labels=3), "Query.labels is a str, not 3"),
            (lambda: cache.source("a").related(fields=["spec"]), "a field is a JSON pointer such as '/spec/html', not 'spec'"),
            (lambda: cache.source("a").related().page(limit=-1), "Query.limit is between 0 and 4294967295, and -1 is not"),
            (lambda: operations.apply(MAP, mode="optimstic"), "there is no mode 'optimstic'; there are: usual, match-and-filter"),
            (lambda: operations.apply(MAP, fast=True), "a write has no option 'fast'; there are: mode, compare_by"),
            (lambda: operations.apply(wrong), "the object is None, not an object"),
            (lambda: operations.merge_patch({"kind": "A"}, {}), "an object needs apiVersion, kind and metadata.name, and this one has no"),
            (lambda: operations.remove(MAP, grace_seconds="3"), "RemoveOptions.grace_seconds is an int, not '3'"),
            (lambda: memo.run.get(wrong), "a key is a str, not None"),
            (lambda: workflow.reconcile(3), "a workflow is a str, not 3"),
            (lambda: recorder.normal("A", wrong), "Event.message is a str, not None"),
            (lambda: recorder.normal("A", "b", labels={"a": 1}), "the label a is a str, not 1"),
        ]
        for call, text in table:
            with self.subTest(text), self.assertRaises((TypeError, ValueError)) as raised:
                call()
            self.assertIn(text, str(raised.exception))


class Words(unittest.TestCase):
    def test_our_words_are_those_of_the_contract(self) -> None:
        literals = {
            "call-reason": errors.Reason,
            "failure-origin": errors.Origin,
            "failure-class": errors.FailureClass,
            "level": log.Level,
            "lifetime": memo.Lifetime,
            "write-mode": operations.Mode,
            "comparison": operations.Comparison,
            "propagation": operations.Propagation,
            "severity": recorder.Severity,
            "operation": workflow.Operation,
            "condition-role": workflow.ConditionRole,
        }
        contract = build._PACKAGE / "wit"
        text = re.sub(r"//.*", "", "\n".join(file.read_text() for file in contract.glob("*.wit")))
        enums = {name: tuple(re.split(r"[,\s]+", cases.strip(", \n"))) for name, cases in re.findall(r"enum ([\w-]+) \{([^}]*)\}", text)}
        self.assertEqual({name: words(literal) for name, literal in literals.items()}, enums)
        [version] = re.findall(r"package capstan:operator@([\d.]+);", text)
        self.assertEqual(build.CONTRACT, version)


if __name__ == "__main__":
    unittest.main()
