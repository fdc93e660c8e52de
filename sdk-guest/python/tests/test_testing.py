"""What stands in for the daemon in unit tests."""

from __future__ import annotations

import logging
import unittest
from datetime import datetime, timezone
from typing import Any

from support import PAGE, Registering

from capstan import (
    CallError,
    Change,
    Met,
    Error,
    FailedRun,
    Failure,
    Handled,
    Created,
    Deletion,
    NextRetry,
    ObjectRef,
    Received,
    Request,
    Retry,
    Things,
    Told,
    Update,
    accepts,
    cache,
    cleanup,
    condition,
    config,
    context,
    create_external,
    decide_retry,
    desired,
    desired_set,
    expectations,
    handle_error,
    initialize,
    info,
    match,
    memo,
    operations,
    poll,
    poll_one,
    receive,
    reconcile,
    recorder,
    remove_external,
    secondaries,
    secondary,
    set_condition,
    sources,
    system,
    to_primaries,
    to_secondaries,
    update_external,
    validate,
    workflow,
)
from capstan.context import RunInfo
from capstan.testing import Line, Run, Write
from capstan.workflow import NodeResult, WorkflowResult


def config_map(name: str, app: str = "web", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "web", "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}, **more}


def caches() -> Run:
    """Four config maps, three of them the primary's, and two primaries."""
    return Run(
        PAGE,
        secondaries={"configs": [config_map("b"), config_map("a"), config_map("c", "db")], "deployment": {"kind": "Deployment"}},
        unrelated={"configs": config_map("theme")},
        primaries=[{"metadata": {"name": "other"}}],
        indexes={"by-theme": {"dark": ["theme"]}},
    )


class TheCaches(unittest.TestCase):
    def test_they_answer_by_place_and_selection(self) -> None:
        configs = cache.source("configs")
        table = [
            (configs.related(), "a b c"),
            (configs.everywhere(), "a b c theme"),
            (configs.related(labels="app=web"), "a b"),
            (cache.kind("v1", "ConfigMap").in_namespace("web", labels="app!=web"), "c"),
            (configs.everywhere(labels="app in (db, x), !old"), "c"),
            (configs.everywhere(labels="app notin (db,x),app"), "a b theme"),
            (configs.everywhere(labels="tier!=front"), "a b c theme"),
            (configs.everywhere(labels="tier"), ""),
            (configs.indexed("by-theme", "dark"), "theme"),
            (configs.indexed("by-theme", "light"), ""),
            (cache.primaries().everywhere(), "other hello"),
            (cache.source("nothing").everywhere(), ""),
        ]
        for query, names in table:
            with self.subTest(query), caches():
                self.assertEqual(" ".join(object["metadata"]["name"] for object in query), names)

    def test_one_object_is_found_by_relation_or_name(self) -> None:
        with caches():
            self.assertEqual((secondary("deployment"), secondary("nothing")), ({"kind": "Deployment"}, None))
            self.assertEqual(len(secondaries("configs", labels="app")), 3)
            configs = cache.source("configs")
            self.assertEqual(configs.named("theme", namespace="web"), config_map("theme"))
            self.assertIsNone(configs.named("theme"))
            page = configs.related().page(limit=2)
            self.assertEqual((len(page.items), configs.related().page(after=page.next).next), (2, None))

    def test_a_source_that_the_controller_does_not_have_is_refused_if_the_test_says_which_it_has(self) -> None:
        asks = [lambda: secondary("setings"), lambda: secondaries("setings"), lambda: cache.source("setings").named("a")]
        with Run(sources=["settings"], secondaries={"configs": []}):
            self.assertEqual((secondary("settings"), secondaries("configs")), (None, []))
            for ask in asks:
                with self.assertRaises(CallError) as raised:
                    ask()
                text = 'no source is called "setings"; there are: configs, settings'
                self.assertEqual((raised.exception.reason, str(raised.exception)), ("missing", text))

    def test_things_outside_of_the_cluster_are_those_of_the_primary(self) -> None:
        with Run(PAGE, things={"domains": {"b": {"id": "b"}, "a": "any JSON"}, "one": {"1": {"id": 1}}}):
            self.assertEqual(secondaries("domains"), ["any JSON", {"id": "b"}])
            self.assertEqual(cache.source("domains").named("b"), {"id": "b"})
            self.assertEqual((cache.source("domains").named("c"), secondary("one")), (None, {"id": 1}))
            self.assertEqual(list(cache.primaries().everywhere()), [PAGE])

    def test_a_wrong_question_says_what_is_wrong(self) -> None:
        table = [
            (lambda: secondary("configs"), "ambiguous", "3 objects belong to the primary"),
            (lambda: list(cache.primaries().related()), "misplaced", "primaries are not related to the primary"),
            (lambda: secondaries("configs", labels="a b"), "invalid", "`a b` is no label selector"),
        ]
        for ask, reason, text in table:
            with self.subTest(text), caches(), self.assertRaises(CallError) as raised:
                ask()
            self.assertEqual((raised.exception.reason, str(raised.exception)), (reason, text))

    def test_fields_are_cut_to_what_was_asked_for(self) -> None:
        with Run(secondaries={"configs": config_map("a")}):
            [object] = secondaries("configs", fields=["/metadata/labels/app", "/nothing"])
        metadata = {"name": "a", "namespace": "web", "labels": {"app": "web"}}
        self.assertEqual(object, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def test_what_is_read_is_a_copy(self) -> None:
        with caches():
            secondary("deployment")["kind"] = "changed"
            self.assertEqual(secondary("deployment"), {"kind": "Deployment"})


class Writes(unittest.TestCase):
    def test_they_are_noted_and_seen_by_later_reads(self) -> None:
        target = ObjectRef("v1", "ConfigMap", "a", "web")
        new = config_map("a", "new")
        with Run(secondaries={"configs": config_map("a", "old")}) as run:
            operations.apply(new)
            self.assertEqual(secondary("configs"), new)
            self.assertEqual(operations.merge_patch(target, {"data": {"a": None, "c": "d"}})["data"], {"c": "d"})
            operations.json_patch(new, [{"op": "add", "path": "/data/e", "value": "f"}], mode="plain")
            self.assertEqual(secondary("configs")["data"], {"c": "d", "e": "f"})
            operations.remove(target)
            self.assertIsNone(secondary("configs"))
            operations.create(new)
            with self.assertRaises(CallError) as raised:
                operations.create(new)
            operations.update(new, subresource="status")
        self.assertEqual((raised.exception.reason, raised.exception.code), ("conflict", 409))
        self.assertEqual(
            run.writes,
            [
                Write("apply", target, new),
                Write("merge-patch", target, {"data": {"a": None, "c": "d"}}),
                Write("json-patch", target, [{"op": "add", "path": "/data/e", "value": "f"}], mode="plain"),
                Write("remove", target),
                Write("create", target, new),
                Write("create", target, new),
                Write("update", target, new, subresource="status"),
            ],
        )

    def test_refused_ones_fail_and_are_not_noted(self) -> None:
        with Run(refuse={"apply": CallError("denied", "not in the manifest")}) as run:
            with self.assertRaisesRegex(CallError, "not in the manifest"):
                operations.apply(config_map("a"))
        self.assertEqual(run.writes, [])

    def test_finalizers_are_those_of_the_primary(self) -> None:
        with Run(PAGE) as run:
            self.assertEqual(operations.add_finalizer("x/y")["metadata"]["finalizers"], ["x/y"])
            self.assertEqual(operations.remove_finalizer("x/y")["metadata"]["finalizers"], [])
        self.assertEqual([write.body for write in run.writes], ["x/y", "x/y"])
        with Run(), self.assertRaises(CallError):
            operations.add_finalizer()

    def test_a_json_patch_does_what_the_standard_says(self) -> None:
        table = [
            ([{"op": "add", "path": "/data/l/1", "value": 9}], {"l": [1, 9, 2]}),
            ([{"op": "add", "path": "/data/l/-", "value": 9}], {"l": [1, 2, 9]}),
            ([{"op": "remove", "path": "/data/l/0"}], {"l": [2]}),
            ([{"op": "replace", "path": "/data/l", "value": 3}], {"l": 3}),
            ([{"op": "move", "from": "/data/l", "path": "/data/a~1b"}], {"a/b": [1, 2]}),
            ([{"op": "copy", "from": "/data/l/0", "path": "/data/l/0"}], {"l": [1, 1, 2]}),
            ([{"op": "test", "path": "/data/l/0", "value": 1}], {"l": [1, 2]}),
        ]
        for patch, data in table:
            with self.subTest(patch), Run(secondaries={"a": config_map("a", data={"l": [1, 2]})}):
                self.assertEqual(operations.json_patch(config_map("a"), patch)["data"], data)
        wrong = [
            {"op": "test", "path": "/data/a", "value": 1},
            {"op": "remove", "path": "/data/x"},
            {"op": "add", "path": "/data/a/b/c", "value": 1},
            {"op": "put", "path": "/data"},
        ]
        for operation in wrong:
            with self.subTest(operation), Run(secondaries={"a": config_map("a")}), self.assertRaises(CallError) as raised:
                operations.json_patch(config_map("a"), [operation])
            self.assertEqual(raised.exception.reason, "invalid")

    def test_comparing_tolerates_additions_and_what_is_ignored(self) -> None:
        actual = {"a": 1, "b": [1], "status": {"c": 3}}
        table = [
            ("generic", {"a": 1}, [], None),
            ("generic", {"a": 2}, [], "/a: found 1, wanted 2"),
            ("generic", {"b": [2]}, [], "/b/0: found 1, wanted 2"),
            ("generic", {"a": 2}, ["/a"], None),
            ("applied", {"x": 1}, [], "/x: found None, wanted 1"),
            ("equality", {"a": 1}, ["/b", "/status"], None),
            ("equality", {"a": 1, "b": [1]}, [], "/status: found None, wanted {'c': 3}"),
            ("status-only", {"a": 2, "status": {"c": 3}}, [], None),
            ("status-only", {"status": {"c": 4}}, [], "/status/c: found 3, wanted 4"),
        ]
        for by, wanted, ignore, differs in table:
            with self.subTest(by=by, wanted=wanted), Run():
                self.assertEqual(operations.compare(actual, wanted, by=by, ignore=ignore), differs)


class TheRest(unittest.TestCase):
    def test_the_run_is_as_the_test_says(self) -> None:
        run = Run(
            controller="pages",
            retry=Retry(2, last=True),
            next_imminent=True,
            primary_deleted=True,
            config={"title": "x"},
            time_left=2,
            now=datetime(2026, 2, 1, tzinfo=timezone.utc),
        )
        with run:
            current = context.run()
            self.assertEqual((current.controller, current.primary_deleted, context.retry()), ("pages", True, Retry(2, True)))
            self.assertEqual((context.next_imminent(), context.time_left(), config.get()), (True, 2.0, {"title": "x"}))
            self.assertEqual(context.settings()["controller"], {"name": "pages"})
            self.assertEqual((system.timestamp(), system.now()), ("2026-02-01T00:00:00Z", datetime(2026, 2, 1, tzinfo=timezone.utc)))
            self.assertNotEqual(system.uuid(), system.uuid())
            self.assertEqual(len(system.random_bytes(3)), 3)
        with self.assertRaisesRegex(RuntimeError, "there is nobody to ask"):
            context.retry()

    def test_memos_last_from_call_to_call(self) -> None:
        with Run(memos={"primary": {"seen": 2}}) as first:
            memo.primary["seen"] += 1
            memo.run["passing"] = True
            del memo.run["passing"]
        with Run(memos=first.memos):
            self.assertEqual((memo.primary["seen"], memo.run.get("seen"), "seen" in memo.plugin), (3, None, False))
            with self.assertRaises(KeyError):
                memo.run["seen"]

    def test_workflows_answer_what_the_test_says(self) -> None:
        pod = NodeResult("pod")
        preview, managed = WorkflowResult([pod]), WorkflowResult([], complete=False)
        with Run(workflows={"preview": preview, None: managed}, dependents=[pod]):
            self.assertIsNone(workflow.last_result())
            self.assertEqual((workflow.reconcile(), workflow.cleanup("preview")), (managed, preview))
            self.assertEqual((workflow.last_result(), workflow.last_result("preview")), (managed, preview))
            self.assertEqual((workflow.reconcile_dependent("pod"), workflow.remove_dependent("pod")), (pod, pod))
            with self.assertRaisesRegex(CallError, "the test has no workflow other"):
                workflow.reconcile("other")
        with Run(last_results={None: preview}):
            self.assertEqual(workflow.last_result(), preview)

    def test_lines_and_events_are_noted(self) -> None:
        before = list(logging.getLogger().handlers)
        with Run() as run:
            info("published", page="hello", replicas=1 + 1)
            logging.getLogger("theme").warning("no %s", "colours", extra={"colour": "red"})
            try:
                raise ValueError("no")
            except ValueError:
                logging.exception("failed")
            recorder.normal("Published", "it is online")
            recorder.warning("NoTheme", "later", key="theme")
        self.assertEqual(logging.getLogger().handlers, before)
        self.assertEqual(
            run.logs[:2],
            [
                Line("info", "published", {"page": "hello", "replicas": "2"}),
                Line("warn", "no colours", {"colour": "red", "logger": "theme"}),
            ],
        )
        [failed] = run.logs[2:]
        self.assertTrue(failed.fields["stack"].endswith("ValueError: no"), failed)
        self.assertEqual([(event.reason, event.key) for event in run.events], [("Published", None), ("NoTheme", "theme")])


class Expectations(unittest.TestCase):
    def test_what_is_expected_is_checked_and_set(self) -> None:
        # XP-1, XP-2, XP-3
        with Run(PAGE) as run:
            self.assertIsNone(expectations.check("ready", lambda: True))
            self.assertFalse(expectations.check_and_set("ready", 1, lambda: True))
            self.assertIsNone(expectations.pending())
            self.assertTrue(expectations.check_and_set("ready", 1, lambda: False))
            self.assertIsNone(expectations.check("gone", lambda: True))
            self.assertEqual(expectations.check("ready", lambda: False), "pending")
            self.assertEqual(expectations.check("ready", lambda: True), "fulfilled")
            self.assertFalse(expectations.clear("ready"))
            with self.assertRaisesRegex(CallError, "has 0 bytes; it may have 1 to 253"):
                expectations.expect("", 1)
            expectations.expect("gone", 1)
        self.assertEqual(run.expectation, expectations.Expectation("gone"))
        with Run(PAGE, expectation=expectations.Expectation("ready", timed_out=True)) as run:
            self.assertEqual(expectations.check("ready", lambda: False), "timed-out")
            self.assertTrue(expectations.clear("ready"))
        self.assertIsNone(run.expectation)


class Conditions(unittest.TestCase):
    def test_the_time_of_a_condition_changes_with_its_status_alone(self) -> None:
        def at(day: int, status: Any, message: str) -> bool:
            with Run(PAGE, now=datetime(2026, 1, day, tzinfo=timezone.utc)):
                return set_condition(conditions, "Synced", status, "Copied", message, generation=2)

        conditions: list[dict[str, Any]] = [{"type": "Other", "status": "Unknown"}]
        self.assertTrue(at(1, False, "half"))
        self.assertTrue(at(2, False, "more"))
        self.assertFalse(at(3, "False", "more"))
        self.assertEqual(conditions[1]["lastTransitionTime"], "2026-01-01T00:00:00Z")
        self.assertTrue(at(3, True, "all"))
        synced = {"type": "Synced", "status": "True", "observedGeneration": 2, "lastTransitionTime": "2026-01-03T00:00:00Z", "reason": "Copied", "message": "all"}
        self.assertEqual(conditions, [{"type": "Other", "status": "Unknown"}, synced])
        with self.assertRaisesRegex(ValueError, "there is no status of a condition 'yes'; there are: True, False, Unknown"):
            at(3, "yes", "all")
        with self.assertRaisesRegex(TypeError, "the reason of a condition is a str, not None"):
            set_condition(conditions, "Synced", True, None)  # type: ignore[arg-type]


class Sources(unittest.TestCase):
    def test_a_source_is_registered_once_and_deregistered(self) -> None:
        # ES-4
        keys, pods = ({"informer": {"apiVersion": "v1", "kind": kind}} for kind in ("Secret", "Pod"))
        refusals = {"nodes": CallError("denied", "the manifest does not permit it")}
        with Run(PAGE, registered={"old": pods}, refuse_sources=refusals) as run:
            self.assertTrue(sources.register("keys", keys))
            self.assertFalse(sources.register("keys", pods))
            sources.deregister("old")
            sources.deregister("gone")
            with self.assertRaisesRegex(CallError, "does not permit it"):
                sources.register("nodes", pods)
        self.assertEqual(run.registered, {"keys": keys})

    def test_what_was_written_outside_of_the_cluster_is_recorded(self) -> None:
        # XC-4
        with Run(PAGE) as run:
            sources.remember("domains", {"id": "a"})
            sources.remember("domains", {"id": "a", "ttl": 1}, {"id": "a"})
            sources.forget("domains", "a")
            with self.assertRaises(TypeError):
                sources.forget("domains", 7)  # type: ignore[arg-type]
        made, changed = {"id": "a"}, {"id": "a", "ttl": 1}
        self.assertEqual(
            run.remembered,
            [
                {"source": "domains", "actual": made, "replaced": None},
                {"source": "domains", "actual": changed, "replaced": made},
                {"source": "domains", "forgotten": "a"},
            ],
        )


class Calls(Registering):
    def test_calls_that_belong_to_no_run_find_the_function_of_their_controller(self) -> None:
        seen = []

        def called(answer):
            return lambda *given: seen.append(context.run()) or answer

        validate(controller="web")(called(None))
        poll("a", controller="web")(called({}))
        poll_one("a", controller="web")(called(None))
        receive("a", controller="web")(called(None))
        accepts("a", controller="web")(called(True))
        to_primaries("a", controller="web")(called(None))
        to_secondaries("a", controller="web")(called(None))
        reconcile(controller="web")(called(None))
        run = Run(PAGE, controller="web")
        run.validate()
        run.poll("a")
        run.poll_one("a")
        run.receive("a", Request())
        run.accepts("a", Change("added", PAGE))
        run.to_primaries("a", PAGE)
        run.to_secondaries("a")
        run.reconcile()
        self.assertEqual(seen, [None] * 7 + [RunInfo("web")])
        with Run(PAGE, beside=True):
            self.assertEqual((context.run(), context.retry()), (None, None))

    def test_an_empty_namespace_is_none(self) -> None:
        poll("a")(lambda: {("", "a"): []})
        receive("a")(lambda: Received([Told("", "a")]))
        to_primaries("a")(lambda: ["/a", ("", "a")])
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
        run = Run(PAGE, unrelated={"nodes": node})
        self.assertEqual(run.poll("a"), {(None, "a"): []})
        self.assertEqual(run.receive("a", Request()).events, [Told(None, "a")])
        self.assertEqual(run.to_primaries("a", PAGE), [(None, "a"), (None, "a")])
        self.assertEqual(ObjectRef("v1", "Node", "a", ""), ObjectRef("v1", "Node", "a"))
        with run:
            self.assertEqual(cache.source("nodes").named("a", ""), node)
            operations.remove({**node, "metadata": {"name": "a", "namespace": ""}})
        self.assertEqual(run.writes[0].target, ObjectRef("v1", "Node", "a"))

    def test_what_is_registered_is_called_by_name_and_over_json(self) -> None:
        @reconcile
        def publish(page):
            page["spec"]["html"] = "changed"
            return Update(status={"of": context.run().controller})

        @cleanup
        def tidy(page):
            return Deletion(keep_finalizer=True)

        @handle_error
        def handle(page, failure):
            return Handled(status={"error": failure.message})

        @decide_retry
        def decide(page, failed):
            return NextRetry(stop=failed.failure_class == "rejected")

        @initialize
        def prepare(page):
            memo.run["of"] = page["metadata"]["name"]

        @desired
        def service(page):
            return {"ports": (80,)}

        @desired_set
        def all_themes(page):
            return ({"name": "dark"}, {"name": "light"})

        @create_external("domain")
        def register(wanted):
            return Created({"id": 1, **wanted}, {"data": {"id": "1"}})

        @update_external("domain")
        def change(actual, wanted):
            return {**actual, **wanted}

        @remove_external("domain")
        def release(actual):
            memo.run["gone"] = actual["id"]

        @match
        def same(actual, wanted, page):
            return operations.compare(actual, wanted)

        @condition
        def ready(page, dependent):
            return Met(True, dependent)

        @poll
        def themes():
            return {("web", "hello"): ({"id": 1},)}

        @poll_one
        def domains(page):
            return [{"id": page["metadata"]["name"]}]

        @accepts
        def named(change):
            return change.object["metadata"]["name"] == "hello"

        @to_primaries
        def pages(theme):
            return [theme["page"]]

        @to_secondaries
        def to_themes(page):
            return ["n/dark"]

        run = Run(PAGE, controller="pages")
        self.assertTrue(run.accepts("named", Change("added", PAGE)))
        self.assertEqual(run.to_primaries("pages", {"page": "hello"}), [(None, "hello")])
        self.assertEqual(run.to_secondaries("to-themes"), [("n", "dark")])
        self.assertEqual(run.poll("themes"), {("web", "hello"): [{"id": 1}]})
        self.assertEqual(run.poll_one("domains"), Things([{"id": "hello"}]))
        self.assertEqual(run.reconcile(), Update(status={"of": "pages"}))
        self.assertEqual(run.cleanup(), Deletion(keep_finalizer=True))
        self.assertEqual(run.handle_error(Failure("workflow", "no", Retry())), Handled(status={"error": "no"}))
        self.assertEqual(run.decide_retry(FailedRun("rejected", "no", Retry())), NextRetry(stop=True))
        self.assertEqual((run.initialize(), run.memos["run"]), (None, {"of": "hello"}))
        self.assertEqual(run.desired("service"), {"ports": [80]})
        self.assertEqual(run.desired_set("all-themes"), [{"name": "dark"}, {"name": "light"}])
        self.assertEqual(run.create_external("domain", {"a": 2}), Created({"id": 1, "a": 2}, {"data": {"id": "1"}}))
        self.assertEqual(run.update_external("domain", {"id": 1}, {"a": 3}), {"id": 1, "a": 3})
        self.assertEqual((run.remove_external("domain", {"id": 7}), run.memos["run"]["gone"]), (None, 7))
        self.assertEqual((run.match("same", {"a": 1}, {"a": 1}), run.match("same", {}, {"a": 1})), (None, "/a: found None, wanted 1"))
        self.assertEqual(run.is_met("ready", "service"), Met(True, "service"))
        self.assertEqual(PAGE["spec"]["html"], "<html></html>")
        with self.assertRaisesRegex(Error, "no desired state for `x`; it has: service"):
            run.desired("x")
        with run:
            run.desired("service")
            self.assertEqual(context.run().controller, "pages", "a call within a run does not end it")
            logging.getLogger("a").warning("once")
        self.assertEqual(run.logs, [Line("warn", "once", {"logger": "a"})])
        with self.assertRaisesRegex(ValueError, "this run has no primary"):
            Run().reconcile()


if __name__ == "__main__":
    unittest.main()
