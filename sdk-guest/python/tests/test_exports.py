"""What the daemon gets: answers and failures of an author's functions, in the types of the contract."""

from __future__ import annotations

import dataclasses
import json
import sys
import unittest
from datetime import datetime, timedelta, timezone

from support import PAGE, Bound

from capstan import (
    CallError,
    Met,
    Created,
    Error,
    FailedRun,
    Failure,
    Handled,
    Deletion,
    NextRetry,
    Received,
    Request,
    Retry,
    Things,
    Told,
    Update,
    accepts,
    cleanup,
    condition,
    create_external,
    decide_retry,
    desired,
    desired_set,
    handle_error,
    initialize,
    Problem,
    validate,
    match,
    poll,
    poll_one,
    receive,
    reconcile,
    remove_external,
    secondary,
    to_primaries,
    to_secondaries,
    update_external,
)
from capstan.errors import DependentFailure

PRIMARY = json.dumps(PAGE)


@dataclasses.dataclass
class Status:
    good: bool
    since: datetime


class Exports(Bound):
    def setUp(self) -> None:
        super().setUp()
        context = self.wit("imports.context")
        self.answer("context", "run", return_value=context.RunInfo("test", None, False, False))
        self.log = self.answer("log", "write")

    def failure(self, call) -> str:
        """Returns the text of a call that fails."""
        with self.assertRaises(sys.modules["componentize_py_types"].Err) as raised:
            call()
        return raised.exception.value

    def test_an_update_is_a_document(self) -> None:
        wit = self.wit("exports.reconciler")
        table = [
            (None, wit.PrimaryUpdate_Nothing(), None),
            (Update(reschedule=1.5), wit.PrimaryUpdate_Nothing(), 1500),
            (Update(reschedule=timedelta(days=100)), wit.PrimaryUpdate_Nothing(), 2**32 - 1),
            (Update(status={}), wit.PrimaryUpdate_Status('{"status":{}}'), None),
            (Update(status={"ä": 1}), wit.PrimaryUpdate_Status('{"status":{"ä":1}}'), None),
            (
                Update(status={"a": 1}, only_at="7"),
                wit.PrimaryUpdate_Status('{"status":{"a":1},"metadata":{"resourceVersion":"7"}}'),
                None,
            ),
            (Update(object={"metadata": None}, only_at="7"), wit.PrimaryUpdate_Object('{"metadata":{"resourceVersion":"7"}}'), None),
            (Update(object={"spec": None}), wit.PrimaryUpdate_Object('{"spec":null}'), None),
            (
                Update(object={"spec": 1, "status": 2}, status={"a": 1}),
                wit.PrimaryUpdate_ObjectAndStatus('{"spec":1,"status":{"a":1}}'),
                None,
            ),
            (
                Update(status=Status(True, datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))))),
                wit.PrimaryUpdate_Status('{"status":{"good":true,"since":"2026-01-31T12:00:00Z"}}'),
                None,
            ),
        ]
        answers = iter(answer for answer, _, _ in table)
        reconcile(lambda page: next(answers))
        for answer, update, after in table:
            with self.subTest(answer):
                self.assertEqual(self.exported("reconciler", "Reconciler").reconcile(PRIMARY), wit.UpdateControl(update, after))

    def test_a_cleanup_ends_unless_it_says_otherwise(self) -> None:
        wit = self.wit("exports.cleaner")
        table = [
            (None, wit.DeleteControl_RemoveFinalizer()),
            (Deletion(keep_finalizer=True), wit.DeleteControl_KeepFinalizer(None)),
            (Deletion(keep_finalizer=True, reschedule=2), wit.DeleteControl_KeepFinalizer(2000)),
        ]
        answers = iter(answer for answer, _ in table)
        cleanup(lambda page: next(answers))
        for answer, expected in table:
            with self.subTest(answer):
                self.assertEqual(self.exported("cleaner", "Cleaner").cleanup(PRIMARY), expected)

    def test_an_error_handler_is_told_all_and_decides_how_to_go_on(self) -> None:
        wit, types = self.wit("exports.error_handler"), self.wit("imports.types")
        table = [
            (None, wit.ErrorControl_Unhandled()),
            (Handled(), wit.ErrorControl_Handled(wit.ErrorHandling(None, wit.NextStep_Retry()))),
            (
                Handled(status={"a": 1}, stop=True),
                wit.ErrorControl_Handled(wit.ErrorHandling('{"status":{"a":1}}', wit.NextStep_Stop())),
            ),
            (Handled(retry_after=3), wit.ErrorControl_Handled(wit.ErrorHandling(None, wit.NextStep_RetryAfterMs(3000)))),
            (Handled(reschedule=2), wit.ErrorControl_Handled(wit.ErrorHandling(None, wit.NextStep_RescheduleMs(2000)))),
        ]
        seen, answers = [], iter(answer for answer, _ in table)

        @handle_error
        def handler(page, failure):
            seen.append(failure)
            return next(answers)

        failed = wit.FailureInfo(
            wit.FailureOrigin.OUT_OF_MEMORY,
            "too much",
            types.CallReason.CONFLICT,
            [wit.DependentFailure("a", "b", types.CallReason.REJECTED)],
            types.RetryInfo(2, True),
        )
        for answer, expected in table:
            with self.subTest(answer):
                self.assertEqual(self.exported("error_handler", "ErrorHandler").handle_error(PRIMARY, failed), expected)
        self.assertEqual(seen[0], Failure("out-of-memory", "too much", Retry(2, True), [DependentFailure("a", "b", "rejected")], "conflict"))

    def test_desired_matches_and_conditions_are_found_by_name(self) -> None:
        types, wit = self.wit("imports.types"), self.wit("exports.condition")

        @desired("service")
        def service(page):
            return {"name": page["metadata"]["name"]}

        self.assertEqual(self.exported("dependent", "Dependent").desired("service", PRIMARY), '{"name":"hello"}')
        table = [
            (None, types.MatchResult_Matches()),
            (True, types.MatchResult_Matches()),
            ("data", types.MatchResult_Differs("data")),
            ("", types.MatchResult_Matches()),
            (False, types.MatchResult_Differs("it says so")),
        ]
        matches = iter(answer for answer, _ in table)
        match("own")(lambda actual, wanted: next(matches))
        for answer, expected in table:
            with self.subTest(answer):
                self.assertEqual(self.exported("matcher", "Matcher").match("own", "{}", "{}", PRIMARY), expected)
        condition("there")(lambda page, dependent: Met(False, [dependent]))
        condition("exposed")(lambda page: True)
        is_met = self.exported("condition", "Condition").is_met
        self.assertEqual(is_met("there", "service", PRIMARY), wit.ConditionResult(False, '["service"]'))
        self.assertEqual(is_met("exposed", "service", PRIMARY), wit.ConditionResult(True, None))

    def test_what_is_wrong_with_a_primary_is_a_list_whatever_is_returned(self) -> None:
        wit = self.wit("exports.validator")
        answers = iter([None, [], "no", Problem("no", "spec.html"), ["no", Problem("so", "spec")], {"no": 1}, [1]])
        validate(lambda page: next(answers))
        exported = self.exported("validator", "Validator").validate
        no = wit.Problem(None, "no")
        for expected in ([], [], [no], [wit.Problem("spec.html", "no")], [no, wit.Problem("spec", "so")]):
            self.assertEqual(exported(PRIMARY, None), expected)
        self.assertIn("not a list of texts or Problem(…), or None", self.failure(lambda: exported(PRIMARY, None)))
        self.assertIn("whose message is no text", self.failure(lambda: exported(PRIMARY, None)))

    def test_a_run_is_prepared_and_answers_nothing(self) -> None:
        answers = iter([None, {"ready": True}])
        initialize(lambda page: next(answers))
        prepare = self.exported("initializer", "Initializer").initialize
        self.assertIsNone(prepare(PRIMARY))
        self.assertIn("not None; `memo.run` hands values to the calls that follow", self.failure(lambda: prepare(PRIMARY)))

    def test_when_a_failed_run_is_retried_becomes_what_the_contract_wants(self) -> None:
        wit, types = self.wit("exports.retry_policy"), self.wit("imports.types")
        failed = wit.FailedRun(wit.FailureClass.OUT_OF_MEMORY, "no", types.RetryInfo(1, False))
        answers = iter([None, NextRetry(), NextRetry(after=0.5), NextRetry(stop=True), 5])
        seen = []

        @decide_retry
        def decide(page, failed):
            seen.append(failed)
            return next(answers)

        decided = self.exported("retry_policy", "RetryPolicy").decide_retry
        for expected in (wit.NextRetry_Declared(), wit.NextRetry_Declared(), wit.NextRetry_AfterMs(500), wit.NextRetry_Stop()):
            self.assertEqual(decided(PRIMARY, failed), expected)
        self.assertEqual(seen[0], FailedRun("out-of-memory", "no", Retry(1, False)))
        self.assertIn("returns 5, not NextRetry(…) or None", self.failure(lambda: decided(PRIMARY, failed)))

    def test_a_controller_without_cleanup_and_error_handler_has_nothing_to_say(self) -> None:
        wit = self.wit("exports.error_handler")
        cleanup(controller="other")(lambda page: Deletion(keep_finalizer=True))
        handle_error(controller="other")(lambda page: Handled())
        self.assertEqual(self.exported("cleaner", "Cleaner").cleanup(PRIMARY), self.wit("exports.cleaner").DeleteControl_RemoveFinalizer())
        failed = wit.FailureInfo(wit.FailureOrigin.OTHER, "", None, [], self.wit("imports.types").RetryInfo(0, False))
        handled = self.exported("error_handler", "ErrorHandler").handle_error(PRIMARY, failed)
        self.assertEqual(handled, wit.ErrorControl_Unhandled())
        decide_retry(controller="other")(lambda page: NextRetry(stop=True))
        retry = self.wit("exports.retry_policy")
        failed = retry.FailedRun(retry.FailureClass.OTHER, "", self.wit("imports.types").RetryInfo(0, False))
        self.assertEqual(self.exported("retry_policy", "RetryPolicy").decide_retry(PRIMARY, failed), retry.NextRetry_Declared())
        validate(controller="other")(lambda page: "no")
        self.assertEqual(self.exported("validator", "Validator").validate(PRIMARY, None), [])
        initialize(controller="other")(lambda page: None)
        self.assertIsNone(self.exported("initializer", "Initializer").initialize(PRIMARY))

    def test_whatever_is_raised_becomes_a_text(self) -> None:
        class Unspeakable(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        table = [
            (ValueError("no"), "ValueError: no"),
            (KeyError("html"), "KeyError: 'html'"),
            (Error("no page"), "no page"),
            (CallError("denied", "not permitted"), "not permitted"),
            (SystemExit(3), "SystemExit: 3"),
            (KeyboardInterrupt(), "KeyboardInterrupt"),
            (ValueError("half \ud800"), "ValueError: half \ufffd"),
            (Unspeakable(), type(Unspeakable()).__qualname__),
            (ModuleNotFoundError("x"), "ModuleNotFoundError: x (a component has what is imported at the top of a file, and nothing else)"),
        ]
        raised = iter(failure for failure, _ in table)

        @reconcile
        def fail(page):
            raise next(raised)

        for failure, text in table:
            with self.subTest(text):
                self.assertEqual(self.failure(lambda: self.exported("reconciler", "Reconciler").reconcile(PRIMARY)), text)

    def test_a_failure_arrives_with_its_stack(self) -> None:
        @reconcile
        def fail(page):
            try:
                page["nothing"]
            except KeyError as error:
                raise ValueError("no") from error

        self.failure(lambda: self.exported("reconciler", "Reconciler").reconcile(PRIMARY))
        [((level, message, [stack]), _)] = self.log.call_args_list
        self.assertEqual((level.name, message, stack.name), ("ERROR", "ValueError: no", "stack"))
        for line in ('page["nothing"]', "KeyError: 'nothing'", 'raise ValueError("no") from error', "ValueError: no"):
            self.assertIn(line, stack.value)
        self.assertNotIn("_calls.py", stack.value)
        self.assertNotIn("_wit", stack.value)

    def test_an_answer_of_another_kind_says_what_would_be_right(self) -> None:
        reconcile(lambda page: {"a": 1})
        cleanup(lambda page: True)
        condition("c")(lambda page: None)
        desired("none")(lambda page: None)
        desired("set")(lambda page: {"a": {1}})
        desired("nan")(lambda page: {"a": float("nan")})
        table = [
            (lambda: self.exported("reconciler", "Reconciler").reconcile(PRIMARY), "returns {'a': 1}, not an Update or None"),
            (lambda: self.exported("cleaner", "Cleaner").cleanup(PRIMARY), "returns True, not Deletion(…) or None"),
            (lambda: self.exported("condition", "Condition").is_met("c", "", PRIMARY), "returns None, not a bool or a Met"),
            (lambda: self.exported("dependent", "Dependent").desired("none", PRIMARY), "returns is None, not an object (a dict)"),
            (lambda: self.exported("dependent", "Dependent").desired("set", PRIMARY), "returns is not JSON: a set is neither dict, list"),
            (lambda: self.exported("dependent", "Dependent").desired("nan", PRIMARY), "returns is not JSON: Out of range float values"),
        ]
        for call, text in table:
            with self.subTest(text):
                self.assertIn(text, self.failure(call))

    def test_none_in_an_answer_says_nothing(self) -> None:
        none, types = None, self.wit("imports.types")
        reconcile(lambda page: Update(status=None, object=None, reschedule=None, only_at=None))
        wit = self.wit("exports.reconciler")
        self.assertEqual(self.exported("reconciler", "Reconciler").reconcile(PRIMARY), wit.UpdateControl(wit.PrimaryUpdate_Nothing(), None))
        cleanup(lambda page: Deletion(keep_finalizer=none, reschedule=None))
        self.assertEqual(self.exported("cleaner", "Cleaner").cleanup(PRIMARY), self.wit("exports.cleaner").DeleteControl_RemoveFinalizer())
        poll_one("a")(lambda: Things(none, None))
        wit = self.wit("exports.resource_poller")
        self.assertEqual(self.exported("resource_poller", "ResourcePoller").poll_one("a", PRIMARY), wit.PollResult([], None))
        receive("a")(lambda: Received(events=none, status=none, text=none))
        wit = self.wit("exports.inbound")
        answer = self.exported("inbound", "Inbound").receive("a", wit.InboundRequest("", [], ""))
        self.assertEqual(answer, wit.InboundAnswer(202, "", []))
        receive("b")(lambda: Received([Told(None, "a", present=None, gone=None)]))
        [event] = self.exported("inbound", "Inbound").receive("b", wit.InboundRequest("", [], "")).events
        self.assertEqual(event, types.SourceEvent(types.ObjectKey(None, "a"), types.Learned_Wake()))

    def test_half_a_character_arrives_as_the_character_for_such(self) -> None:
        half, whole, types = "a\ud800", "a\ufffd", self.wit("imports.types")
        key = types.ObjectKey(whole, whole)
        reconcile(lambda page: Update(status={half: half}, only_at=half))
        update = self.exported("reconciler", "Reconciler").reconcile(PRIMARY).update
        self.assertEqual(update.value, f'{{"status":{{"{whole}":"{whole}"}},"metadata":{{"resourceVersion":"{whole}"}}}}')
        handle_error(lambda page: Handled(status={"a": half}))
        failed = self.wit("exports.error_handler")
        failed = failed.FailureInfo(failed.FailureOrigin.OTHER, "", None, [], types.RetryInfo(0, False))
        handled = self.exported("error_handler", "ErrorHandler").handle_error(PRIMARY, failed)
        self.assertEqual(handled.value.status, f'{{"status":{{"a":"{whole}"}}}}')
        validate(lambda page: [half, Problem(half, half)])
        problem = self.wit("exports.validator").Problem
        self.assertEqual(self.exported("validator", "Validator").validate(PRIMARY, None), [problem(None, whole), problem(whole, whole)])
        match("a")(lambda actual: half)
        self.assertEqual(self.exported("matcher", "Matcher").match("a", "{}", "{}", PRIMARY), types.MatchResult_Differs(whole))
        condition("a")(lambda page: Met(True, half))
        self.assertEqual(self.exported("condition", "Condition").is_met("a", "", PRIMARY).detail, f'"{whole}"')
        poll("a")(lambda: {(half, half): [half]})
        polled = self.wit("exports.poller").PrimaryResources(key, [f'"{whole}"'])
        self.assertEqual(self.exported("poller", "Poller").poll("a"), [polled])
        receive("a")(lambda: Received([Told(half, half, gone=half), Told(half, half, present=half)], text=half))
        wit = self.wit("exports.inbound")
        answer = self.exported("inbound", "Inbound").receive("a", wit.InboundRequest("", [], ""))
        learned = [types.Learned_Gone(whole), types.Learned_Present(f'"{whole}"')]
        self.assertEqual(answer, wit.InboundAnswer(202, whole, [types.SourceEvent(key, one) for one in learned]))
        to_primaries("a")(lambda theme: [f"{half}/{half}", (half, half)])
        self.assertEqual(self.exported("mapper", "Mapper").to_primaries("a", "{}"), [key, key])

    def test_a_bulk_is_a_list_of_objects(self) -> None:
        # BD-1
        desired_set("themes")(lambda page: [{"name": page["metadata"]["name"]}, {"name": "b"}])
        desired_set("nothing")(lambda: [])
        desired_set("one")(lambda page: {"name": "a"})
        desired_set("none")(lambda: None)
        desired_set("texts")(lambda: ["a"])
        bulk = self.exported("bulk", "Bulk")
        self.assertEqual(bulk.desired_set("themes", PRIMARY), ['{"name":"hello"}', '{"name":"b"}'])
        self.assertEqual(bulk.desired_set("nothing", PRIMARY), [])
        table = [
            ("one", "returns {'name': 'a'}, not a list of objects"),
            ("none", "returns None, not a list of objects"),
            ("texts", "is a str, not an object (a dict)"),
            ("x", "this component has no desired set for `x`; it has: themes, nothing, one, none, texts"),
        ]
        for name, text in table:
            with self.subTest(name):
                self.assertIn(text, self.failure(lambda name=name: bulk.desired_set(name, PRIMARY)))

    def test_what_is_outside_of_the_cluster_is_written_by_three_functions(self) -> None:
        # XD-1, XD-2
        wit = self.wit("exports.external")
        create_external("plain")(lambda desired, page: {"id": 1, **desired, "of": page["metadata"]["name"]})
        create_external("remembered")(lambda desired: Created({"id": 1}, state={"data": {"id": "1"}}))
        create_external("nothing")(lambda: None)
        create_external("odd")(lambda: Created({"id": 1}, state="a"))
        update_external("plain")(lambda actual, desired: {**actual, **desired})
        update_external("nothing")(lambda: None)
        removed = []
        remove_external("plain")(lambda actual, page: removed.append(actual))
        remove_external("odd")(lambda: True)
        external = self.exported("external", "External")
        self.assertEqual(external.create("plain", '{"a":2}', PRIMARY), wit.Created('{"id":1,"a":2,"of":"hello"}', None))
        self.assertEqual(external.create("remembered", "{}", PRIMARY), wit.Created('{"id":1}', '{"data":{"id":"1"}}'))
        self.assertEqual(external.update("plain", '{"id":1,"a":2}', '{"a":3}', PRIMARY), '{"id":1,"a":3}')
        self.assertEqual((external.remove("plain", '{"id":1}', PRIMARY), removed), (None, [{"id": 1}]))
        table = [
            (lambda: external.create("nothing", "{}", PRIMARY), "returns is None, not an object"),
            (lambda: external.create("odd", "{}", PRIMARY), "the state that"),
            (lambda: external.update("nothing", "{}", "{}", PRIMARY), "returns is None, not an object"),
            (lambda: external.remove("odd", "{}", PRIMARY), "returns True, not None"),
            (lambda: external.remove("x", "{}", PRIMARY), "this component has no remover of `x`; it has: plain, odd"),
        ]
        for call, text in table:
            with self.subTest(text):
                self.assertIn(text, self.failure(call))

    def test_what_is_polled_is_a_list_of_things_by_primary(self) -> None:
        poll("themes")(lambda: {("web", "hello"): [{"id": 1}, "x"], "all": ()})
        poll_one("domains")(lambda page: [{"id": page["metadata"]["name"]}])
        poll_one("soon")(lambda: Things([], again=1.5))
        poll_one("nothing")(lambda: None)
        wit, types = self.wit("exports.poller"), self.wit("imports.types")
        self.assertEqual(
            self.exported("poller", "Poller").poll("themes"),
            [
                wit.PrimaryResources(types.ObjectKey("web", "hello"), ['{"id":1}', '"x"']),
                wit.PrimaryResources(types.ObjectKey(None, "all"), []),
            ],
        )
        one, wit = self.exported("resource_poller", "ResourcePoller"), self.wit("exports.resource_poller")
        self.assertEqual(one.poll_one("domains", PRIMARY), wit.PollResult(['{"id":"hello"}'], None))
        self.assertEqual(one.poll_one("soon", PRIMARY), wit.PollResult([], 1500))
        self.assertEqual(one.poll_one("nothing", PRIMARY), wit.PollResult([], None))

    def test_a_request_becomes_what_it_says_and_its_answer(self) -> None:
        @receive("builds")
        def builds(request: Request) -> Received:
            return Received([Told("n", "a", request.json()), Told(None, "b"), Told("n", "a", gone=7)])

        receive("echo")(lambda request: Received(status=200, text=f"{request.path} {request.headers['x-kind']} {request.body}"))
        receive("nothing")(lambda: None)
        receive("wrong")(lambda: Received(status=99))
        receive("both")(lambda: Received([Told("n", "a", 1, "7")]))
        wit, types = self.wit("exports.inbound"), self.wit("imports.types")
        one = self.exported("inbound", "Inbound")
        pairs = [types.Pair("x-kind", "push"), types.Pair("x-kind", "more")]
        request = wit.InboundRequest("/x?y", pairs, '{"id":1}')
        a, b = types.ObjectKey("n", "a"), types.ObjectKey(None, "b")
        events = [
            types.SourceEvent(a, types.Learned_Present('{"id":1}')),
            types.SourceEvent(b, types.Learned_Wake()),
            types.SourceEvent(a, types.Learned_Gone("7")),
        ]
        self.assertEqual(one.receive("builds", request), wit.InboundAnswer(202, "", events))
        self.assertEqual(one.receive("echo", request), wit.InboundAnswer(200, '/x?y push, more {"id":1}', []))
        self.assertEqual(one.receive("nothing", request), wit.InboundAnswer(202, "", []))
        self.assertIn("returns the status 99, not one from 200 to 599", self.failure(lambda: one.receive("wrong", request)))
        self.assertIn("says of a that something is present and gone", self.failure(lambda: one.receive("both", request)))

    def test_a_filter_sees_the_object_as_it_is_and_was(self) -> None:
        accepts("renamed")(lambda change: change.sort == "updated" and change.object["name"] != change.before["name"])
        accepts("missed")(lambda change: change.sort == "deleted" and change.final_state_unknown)
        accepts("added")(lambda change: change.sort == "added" and change.object["name"] == "a" and change.before is None)
        wit = self.wit("exports.filter")
        a, b = '{"name":"a"}', '{"name":"b"}'
        table = [
            ("renamed", wit.Change_Updated(wit.ObjectUpdate(a, b)), True),
            ("renamed", wit.Change_Updated(wit.ObjectUpdate(a, a)), False),
            ("missed", wit.Change_Deleted(wit.ObjectDeletion(a, True)), True),
            ("missed", wit.Change_Deleted(wit.ObjectDeletion(a, False)), False),
            ("added", wit.Change_Added(a), True),
            ("added", wit.Change_Added(b), False),
        ]
        for name, change, accepted in table:
            with self.subTest(name):
                self.assertEqual(self.exported("filter", "Filter").accepts(name, change), accepted)

    def test_mappers_answer_with_names_and_namespaces(self) -> None:
        to_primaries("pages")(lambda theme: theme["pages"] + [("m", "c"), (None, "d")])
        to_primaries("none")(lambda theme: None)
        to_secondaries("themes")(lambda page: {page["metadata"]["name"]})
        key, mapper = self.wit("imports.types").ObjectKey, self.exported("mapper", "Mapper")
        found = mapper.to_primaries("pages", '{"pages":["a","n/b"]}')
        self.assertEqual(found, [key(None, "a"), key("n", "b"), key("m", "c"), key(None, "d")])
        self.assertEqual(mapper.to_primaries("none", "{}"), [])
        led = self.exported("secondary_mapper", "SecondaryMapper").to_secondaries("themes", PRIMARY)
        self.assertEqual(led, [key(None, "hello")])

    def test_what_filters_and_mappers_answer_in_another_shape_says_what_would_be_right(self) -> None:
        accepts("text")(lambda change: "yes")
        to_primaries("text")(lambda theme: "a")
        to_primaries("number")(lambda theme: [7])
        wit = self.wit("exports.filter")
        table = [
            (lambda: self.exported("filter", "Filter").accepts("text", wit.Change_Added("{}")), "returns 'yes', not a bool"),
            (lambda: self.exported("mapper", "Mapper").to_primaries("text", "{}"), "returns 'a', not a list of names"),
            (lambda: self.exported("mapper", "Mapper").to_primaries("number", "{}"), 'returns 7, which is neither "name"'),
            (lambda: self.exported("mapper", "Mapper").to_primaries("x", "{}"), "no mapper `x`; it has: text, number"),
        ]
        for call, text in table:
            with self.subTest(text):
                self.assertIn(text, self.failure(call))

    def test_a_component_describes_the_names_of_what_is_registered(self) -> None:  # LC-15
        reconcile(lambda page: None)
        desired("configmap")(lambda page: {})
        desired("service")(lambda page: {})
        condition("ready", controller="web")(lambda page: True)
        known = self.wit("exports.description").KnownNames
        self.assertEqual(
            self.exported("description", "Description").describe(),
            [known("reconciler", None, None), known("dependent", None, ["configmap", "service"]), known("condition", "web", ["ready"])],
        )

    def test_a_poll_belongs_to_no_run_and_finds_its_controller_in_the_settings(self) -> None:
        poll("themes", controller="web")(lambda: {})
        self.answer("context", "run", return_value=None)
        self.answer("context", "settings", return_value='{"controller":{"name":"web"}}')
        self.assertEqual(self.exported("poller", "Poller").poll("themes"), [])

    def test_what_is_polled_in_another_shape_says_what_would_be_right(self) -> None:
        poll("list")(lambda: [])
        poll("number")(lambda: {7: []})
        poll("text")(lambda: {"a": "b"})
        poll_one("dict")(lambda page: {"a": 1})
        table = [
            (lambda: self.exported("poller", "Poller").poll("list"), "returns [], not a dict of lists by primary"),
            (lambda: self.exported("poller", "Poller").poll("number"), "things of 7, which is neither (namespace, name) nor a name"),
            (lambda: self.exported("poller", "Poller").poll("text"), "returns 'b', not a list of things"),
            (lambda: self.exported("resource_poller", "ResourcePoller").poll_one("dict", PRIMARY), "returns {'a': 1}, not a list of things"),
        ]
        for call, text in table:
            with self.subTest(text):
                self.assertIn(text, self.failure(call))

    def test_nobody_answers_outside_a_call(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "not while it is imported.*capstan.testing.Run"):
            secondary("a")


if __name__ == "__main__":
    unittest.main()
