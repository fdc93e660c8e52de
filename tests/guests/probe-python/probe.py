"""Asks the daemon for all that a component may ask for, and puts the answers into the status: for tests of the SDK alone."""

import random
import time
import urllib.request
from dataclasses import asdict

from capstan import CallError, Met, Created, Error, Handled, Deletion, NextRetry, ObjectRef, Problem, Received, Told, Update
from capstan import cache, config, context, expectations, info, memo, operations, recorder, secondaries, secondary, sources, system, workflow
from capstan import accepts, cleanup, condition, create_external, decide_retry, desired, desired_set, handle_error, initialize, match, poll, poll_one, receive, reconcile, remove_external, to_primaries, to_secondaries, update_external, validate

WORD = "Grüße 👋"


@reconcile
def ask(probe):
    metadata, runs = probe["metadata"], memo.primary.get("runs", 0) + 1
    if context.run().primary_deleted:
        return info("gone", text=probe["spec"]["text"], generation=metadata["generation"])
    if memo.primary.get("done") == metadata["generation"]:
        return None
    fail(probe, "reconcile")
    if "requests" in probe["spec"]:
        return Update(status={"answers": [requested(one["url"]) for one in probe["spec"]["requests"]]})
    if probe["spec"].get("again"):
        memo.primary["runs"] = runs
        own = {"metadata": {"annotations": {"runs": str(runs)}, "finalizers": metadata["finalizers"]}}
        return Update(status={"runs": runs}, object=own, only_at=metadata["resourceVersion"]) if runs == 3 else Update(reschedule=0.01)
    memo.primary["done"] = metadata["generation"]
    info("asked", word=WORD, generation=metadata["generation"])
    recorder.normal("Asked", WORD, key="k", action="ask", component="prober", labels={"a": "b"}, annotations={"c": WORD})
    recorder.warning("Odd", "nobody knows why")
    name = f"{metadata['name']}-{metadata['generation']}"
    status = {"operations": writes(probe, name), "cache": reads(probe, name), "memo": memories(), "workflow": workflows(), "expected": expected(), "sources": registered()}
    operations.remove(ObjectRef("v1", "ConfigMap", f"{name}-two", metadata["namespace"]), propagation="background", grace_seconds=0)
    return Update(status=status | {"run": surroundings(), "chance": chance()})


def requested(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return {"code": answer.status, "text": answer.read().decode()}
    except OSError as failure:
        return {"error": str(failure)}


def writes(probe, name):
    owner = {"apiVersion": probe["apiVersion"], "kind": probe["kind"], "name": probe["metadata"]["name"], "uid": probe["metadata"]["uid"]}
    metadata = {"namespace": probe["metadata"]["namespace"], "labels": {"made": name}, "ownerReferences": [owner]}
    one, two = ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | {"name": f"{name}-{end}"}} for end in ("one", "two"))
    operations.create(two, mode="cache-only")
    created = operations.create(one | {"data": {"v": "1"}})
    applied = operations.apply(one | {"data": {"v": "2"}})
    updated = operations.update(applied | {"data": {"v": "3"}})
    edited = operations.edit(updated | {"data": {"v": "4"}})
    merged = operations.merge_patch(edited, {"data": {"v": "5"}})
    patched = operations.json_patch(merged, [{"op": "replace", "path": "/data/v", "value": "6"}], mode="force-filter")
    return {
        "written": [each["data"]["v"] for each in (created, applied, updated, edited, merged, patched)],
        "conflict": refusal(lambda: operations.update(created, mode="optimistic")),
        "denied": refusal(lambda: operations.remove(ObjectRef("v1", "Secret", "safe", metadata["namespace"]))),
        "same": operations.compare(patched, {"data": {"v": "6"}}),
        "differs": operations.compare(patched, {"data": {"v": WORD}}, by="generic", ignore=["/metadata"]),
    }


def reads(probe, name):
    maps, namespace = cache.kind("v1", "ConfigMap"), probe["metadata"]["namespace"]
    page = maps.in_namespace(namespace, labels=f"made={name}", fields=["/data"]).page(limit=1)
    return {
        "one": secondary("first")["data"],
        "named": maps.named(f"{name}-one", namespace)["data"],
        "nobody": maps.named("nobody", namespace),
        "related": [map["metadata"]["name"] for map in secondaries("maps", labels=f"made in ({name})")],
        "page": {"data": page.items[0]["data"], "labels": page.items[0]["metadata"].get("labels"), "more": page.next is not None},
        "primaries": [other["metadata"]["name"] for other in cache.primaries().everywhere()],
        "indexed": [other["metadata"]["name"] for other in cache.primaries().indexed("by-text", probe["spec"]["text"])],
        "missing": refusal(lambda: cache.source("nowhere").one()),
        "led": [map["metadata"]["name"] for map in secondaries("asked")],
        "polled": {"themes": secondaries("themes"), "domain": secondary("domains"), "named": cache.source("themes").named("dark")},
    }


def memories():
    memo.run["word"] = memo.plugin["word"] = memo.plugin["gone"] = {"word": WORD}
    del memo.plugin["gone"]
    full = refusal(lambda: memo.primary.__setitem__("long", "x" * 5000))
    told = {"run": memo.run["word"], "primary": memo.primary["done"], "plugin": memo.plugin["word"]}
    return told | {"gone": memo.plugin.get("gone"), "full": full, "prepared": memo.run["prepared"]}


def expected():
    told = {"set": expectations.check_and_set("word", 3600, lambda: False), "check": expectations.check("word", lambda: False)}
    pending = expectations.pending()
    told |= {"pending": {"name": pending.name, "timedOut": pending.timed_out}}
    told |= {"done": expectations.check("word", lambda: True), "gone": expectations.pending(), "cleared": expectations.clear("word")}
    return told | {"refused": refusal(lambda: expectations.expect("", 1))}


def registered():
    more = {"informer": {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": "nobody=has"}}
    told = {"new": sources.register("more", more), "again": sources.register("more", more), "found": len(secondaries("more"))}
    told |= {"denied": refusal(lambda: sources.register("keys", {"informer": {"apiVersion": "v1", "kind": "Secret"}}))}
    told |= {"invalid": refusal(lambda: sources.register("bad", {"informer": {}}))}
    told |= {"declared": refusal(lambda: sources.deregister("maps"))}
    told |= {"kept": refusal(lambda: sources.remember("maps", {"id": 8}, {"id": 8}))}
    told |= {"gone": refusal(lambda: sources.forget("nowhere", "8"))}
    sources.deregister("more")
    sources.deregister("more")
    return told


def workflows():
    return {
        "managed": asdict(workflow.last_result()),
        "dependent": asdict(workflow.reconcile_dependent("extra")),
        "flow": asdict(workflow.reconcile("flow")),
        "last": asdict(workflow.last_result("flow")),
        "removed": asdict(workflow.remove_dependent("extra")),
        "many": asdict(workflow.reconcile("many")),
        "away": asdict(workflow.reconcile("away")),
        "seen": secondary("away"),
        "brief": [asdict(workflow.reconcile_dependent("brief")), asdict(workflow.remove_dependent("brief"))],
        "unknown": refusal(lambda: workflow.cleanup("unknown")),
    }


def surroundings():
    run, dependents = context.run(), context.settings()["controller"]["workflow"]["dependents"]
    info = {"controller": run.controller, "retry": run.retry and asdict(run.retry)}
    info |= {"primaryDeleted": run.primary_deleted, "finalStateUnknown": run.final_state_unknown}
    return {"info": info, "config": config.get(), "settings": dependents["first"]["config"]}


def chance():
    """Returns what is another each time."""
    told = {"now": system.timestamp(), "nowMs": system.now().timestamp() * 1000, "uuid": system.uuid(), "bytes": len(system.random_bytes(8))}
    told |= {"leftMs": context.time_left() * 1000, "imminent": context.next_imminent()}
    return told | {"clockMs": time.time() * 1000, "dice": str(random.random())}


@cleanup
def tidy(probe):
    memo.primary["cleanups"] = calls = memo.primary.get("cleanups", 0) + 1
    info("tidied", calls=calls)
    return Deletion(keep_finalizer=True, reschedule=0.01) if calls == 1 else None


@handle_error
def tell(probe, failure):
    return Handled(status={"failure": asdict(failure)}, stop=bool(probe["spec"].get("stop")))


@decide_retry
def decide(probe, failed):
    info("decides", of=failed.failure_class, attempt=failed.retry.attempt)
    return NextRetry(stop=True) if probe["spec"].get("stopRetry") else NextRetry(after=0.02)


@validate
def check(probe):
    field = probe["spec"].get("wrong")
    return Problem(WORD, field) if field else None


@initialize
def prepare(probe):
    memo.run["prepared"] = probe["metadata"]["generation"]


@desired
def first(probe):
    fail(probe, "first")
    metadata = {"name": f"{probe['metadata']['name']}-first", "annotations": {"note": probe["spec"]["note"]}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": probe["spec"]["text"]}}


@desired
def extra(probe):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{probe['metadata']['name']}-extra"}, "data": memo.run["word"]}


@desired_set("all")
def all_maps(probe):
    name, text = probe["metadata"]["name"], probe["spec"]["text"]
    names = (f"{name}-all", f"{name}-all-{text}")
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each}, "data": {"text": text, "word": WORD}} for each in names]


@desired
def away(probe):
    return {"id": "7", "text": probe["spec"]["text"], "word": WORD}


@desired
def brief(probe):
    return {"id": "8"}


@create_external("away")
def make(wanted):
    return Created(wanted | {"made": WORD})


@create_external("brief")
def make_brief(wanted, probe):
    return wanted | {"of": probe["metadata"]["name"]}


@update_external("away")
def change(actual, wanted):
    return wanted | {"was": actual["text"]}


@remove_external("brief")
def let_go(thing, probe):
    if thing["of"] != probe["metadata"]["name"]:
        raise Error(f"{thing} is another one's")


@match("same-data")
def same_data(actual, wanted):
    return None if actual["data"] == wanted["data"] else f"data, {WORD}"


@condition
def wanted(probe):
    return probe["spec"].get("wanted", True)


@condition
def ready(probe, dependent):
    return Met(True, {"dependent": dependent, "data": secondary(dependent)["data"], "note": probe["spec"]["note"]})


@poll
def themes():
    namespace = context.settings()["controller"]["namespaces"][0]
    return {(namespace, "p"): [{"id": "dark", "word": WORD, "beside": context.run() is None}]}


@poll_one
def domains(probe):
    return [{"id": 7, "name": probe["metadata"]["name"], "denied": refusal(lambda: operations.add_finalizer())["reason"]}]


@poll_one
def registry():
    return []


@receive
def hooks(request):
    asked = request.json()
    if "explode" in asked:
        explode()
    told = [Told(asked["namespace"], "p", present=asked["present"]), Told(asked["namespace"], "p", gone="8"), Told(asked["namespace"], "p")]
    return Received(told, status=201, text=f"{WORD} {request.path} {request.headers['x-kind']}")


@accepts
def shown(change):
    return change.sort != "updated" or change.before["data"]["word"] != change.object["data"]["word"]


@to_primaries
def to_probes(asked):
    return [asked["data"]["of"]]


@to_secondaries
def to_maps(probe):
    return ["asked", (probe["metadata"]["namespace"], "gone")]


def fail(probe, where):
    how = probe["spec"].get("fail", {}).get(where)
    if how == "error" or how == "once" and context.retry() is None:
        raise Error(f"{where} has failed: {WORD}")
    if how == "denied":
        operations.remove(ObjectRef("v1", "Secret", "safe", probe["metadata"]["namespace"]))
    if how == "explode":
        explode()


def explode():
    raise ValueError(f"exploded: {WORD}")


def refusal(call):
    try:
        return f"not refused: {call()}"
    except CallError as error:
        return {"reason": error.reason, "code": error.code or 0, "message": str(error)}
