"""The code of docs/guide.md that gives up waiting."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from support import PAGE, Registering

import capstan
from capstan import Error, Failure, Handled, Retry, Update
from capstan.expectations import Expectation
from capstan.testing import Run

GUIDE = Path(__file__).parents[3] / "docs" / "guide.md"


class Waiting(Registering):
    def setUp(self) -> None:
        super().setUp()
        section = GUIDE.read_text().split("\n## Waiting for something\n")[1].split("\n## ")[0]
        code: dict[str, Any] = {name: getattr(capstan, name) for name in capstan.__all__}
        exec(section.split("```python\n")[1].split("```")[0], code)

    def run_of(self, replicas: int, expectation: Expectation | None = None) -> Run:
        deployment = {"metadata": {"name": "hello", "namespace": "web"}, "status": {"readyReplicas": replicas}}
        return Run(PAGE, secondaries={"deployment": deployment}, expectation=expectation)

    def test_it_waits_as_long_as_its_time_lasts(self) -> None:
        starting = Update(status={"state": "starting"}, reschedule=600)
        run = self.run_of(0)
        self.assertEqual(run.reconcile(), starting)
        self.assertEqual(run.expectation, Expectation("ready"))
        self.assertEqual(self.run_of(0, Expectation("ready")).reconcile(), starting)
        for expectation in (None, Expectation("ready"), Expectation("ready", timed_out=True)):
            self.assertEqual(self.run_of(1, expectation).reconcile(), Update(status={"state": "running"}))

    def test_it_gives_up_after_that_and_retries_what_else_fails(self) -> None:
        run = self.run_of(0, Expectation("ready", timed_out=True))
        with self.assertRaises(Error) as raised:
            run.reconcile()
        failed = Handled(status={"state": "failed"}, stop=True)
        self.assertEqual(run.handle_error(Failure("reconciler", str(raised.exception), Retry())), failed)
        self.assertIsNone(run.handle_error(Failure("reconciler", "KeyError: 'spec'", Retry())))


if __name__ == "__main__":
    unittest.main()
