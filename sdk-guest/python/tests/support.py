"""What several test files need: a clean registry, and the generated bindings."""

from __future__ import annotations

import importlib
import sys
import tempfile
import typing
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from capstan import build, registry

PAGE = {
    "apiVersion": "sample.capstan.dev/v1",
    "kind": "WebPage",
    "metadata": {"name": "hello", "namespace": "web", "generation": 3},
    "spec": {"html": "<html></html>"},
}


class Registering(unittest.TestCase):
    """Registers functions for one test."""

    def setUp(self) -> None:
        patched = mock.patch.object(registry, "registered", [])
        patched.start()
        self.addCleanup(patched.stop)


class Bound(Registering):
    """Has the bindings of a component that exports everything, as `wit_world`; their functions are to be replaced."""

    @classmethod
    def setUpClass(cls) -> None:
        import componentize_py

        # The bindings of a component are run by its own Python, which is newer; these are for tests alone.
        if not hasattr(typing, "Self"):
            typing.Self = Any
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        contract = build._contract(folder)
        (folder / "component.wit").write_text(build.world(list(registry.Interface)))
        componentize_py.generate_bindings(
            wit_path=[str(contract), str(folder / "component.wit")],
            worlds=["capstan:component/component"],
            features=[],
            all_features=False,
            world_module=None,
            output_dir=str(folder / "bindings"),
            import_interface_names=[],
            export_interface_names=[],
            full_names=False,
        )
        sys.path.insert(0, str(folder / "bindings"))
        cls.addClassCleanup(sys.path.remove, str(folder / "bindings"))
        cls.addClassCleanup(cls._forget)

    @staticmethod
    def _forget() -> None:
        for name in list(sys.modules):
            if name.startswith(("wit_world", "capstan._wit", "componentize_py_types")):
                del sys.modules[name]

    def wit(self, name: str) -> Any:
        """Returns a module of the bindings."""
        return importlib.import_module(f"wit_world.{name}")

    def exported(self, interface: str, name: str) -> Any:
        """Returns what a component exports."""
        return getattr(importlib.import_module(f"capstan._wit.{interface}"), name)()

    def answer(self, module: str, function: str, **behaviour: Any) -> mock.Mock:
        """Lets a function of the daemon answer."""
        patched = mock.patch.object(self.wit(f"imports.{module}"), function, **behaviour)
        self.addCleanup(patched.stop)
        return patched.start()
