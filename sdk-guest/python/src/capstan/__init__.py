"""Write a Kubernetes operator as a WebAssembly component for Capstan.

    from capstan import Update, desired, reconcile, secondary

    @desired("configmap")
    def configmap(page):
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": page["metadata"]["name"]}, ...}

    @reconcile
    def webpage(page):
        return Update(status={"ready": secondary("configmap") is not None})

What the daemon may call is decorated: `reconcile`, `cleanup`, `handle_error`, `decide_retry`, `validate`, `initialize`, `desired`, `desired_set`, `create_external`, `update_external`, `remove_external`, `match`, `condition`, `poll`, `poll_one`,
`receive`, `accepts`, `to_primaries`, `to_secondaries`. What a function may ask of the daemon while it runs is imported from here: `secondary`, `secondaries`, `info` and the like, and the modules `cache`,
`config`, `context`, `expectations`, `log`, `memo`, `operations`, `recorder`, `sources`, `system`, `workflow`. `python -m capstan build` makes the component;
`capstan.testing` stands in for the daemon in unit tests.
"""

from capstan import cache, config, context, expectations, log, memo, operations, recorder, sources, system, workflow
from capstan._json import Object
from capstan.answers import Change, Created, Deletion, Duration, Handled, Key, Met, NextRetry, Problem, Received, Request, Things, Told, Update
from capstan.cache import secondaries, secondary
from capstan.context import Retry, RunInfo
from capstan.errors import CallError, DependentFailure, Error, FailedRun, Failure, FailureClass
from capstan.log import debug, error, info, trace, warn
from capstan.operations import ObjectRef
from capstan.registry import (
    accepts,
    cleanup,
    condition,
    create_external,
    decide_retry,
    desired,
    desired_set,
    handle_error,
    initialize,
    match,
    poll,
    poll_one,
    receive,
    reconcile,
    remove_external,
    to_primaries,
    to_secondaries,
    update_external,
    validate,
)
from capstan.status import StatusCondition, set_condition
from capstan.types import Metadata

__all__ = [
    "CallError",
    "Change",
    "Created",
    "Deletion",
    "DependentFailure",
    "Duration",
    "Error",
    "FailedRun",
    "Failure",
    "FailureClass",
    "Handled",
    "Key",
    "Met",
    "Metadata",
    "NextRetry",
    "Object",
    "ObjectRef",
    "Problem",
    "Received",
    "Request",
    "Retry",
    "RunInfo",
    "StatusCondition",
    "Things",
    "Told",
    "Update",
    "accepts",
    "cache",
    "cleanup",
    "condition",
    "config",
    "context",
    "create_external",
    "debug",
    "decide_retry",
    "desired",
    "desired_set",
    "error",
    "expectations",
    "handle_error",
    "info",
    "initialize",
    "log",
    "match",
    "memo",
    "operations",
    "poll",
    "poll_one",
    "receive",
    "reconcile",
    "recorder",
    "remove_external",
    "secondaries",
    "secondary",
    "set_condition",
    "sources",
    "system",
    "to_primaries",
    "to_secondaries",
    "trace",
    "update_external",
    "validate",
    "warn",
    "workflow",
]
