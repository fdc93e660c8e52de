"""What a build refuses, and that the README tells the truth. Real components are built and run by the daemon's own tests."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import types
from pathlib import Path
from unittest import mock

from support import Registering

from capstan import __main__ as command_line
from capstan import build, registry
from capstan.registry import Interface

README = Path(__file__).parents[1] / "README.md"
COMMITTED = "from capstan import desired\n@desired\ndef service(page): return {}\n"


class TheBuild(Registering):
    def setUp(self) -> None:
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name).resolve()
        before = set(sys.modules)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in set(sys.modules) - before])

    def said(self, name: str, text: str, *arguments: str) -> str:
        """Writes a module, and returns what is said instead of building it."""
        module = self.folder / name
        module.write_text(text)
        errors = io.StringIO()
        output = ["-o", str(self.folder / "out.wasm")]
        with contextlib.redirect_stderr(errors):
            self.assertEqual(command_line.main(["build", str(module), *output, *arguments]), 1)
        self.assertFalse((self.folder / "out.wasm").exists())
        return errors.getvalue().replace(f"{self.folder}{os.sep}", "").strip()

    def test_the_world_has_what_is_registered_and_its_description(self) -> None:
        self.assertEqual(
            build.world([Interface.RECONCILER, Interface.ERROR_HANDLER]),
            "package capstan:component;\n\nworld component {\n"
            "  include capstan:operator/imports@0.1.0;\n"
            "  export capstan:operator/reconciler@0.1.0;\n"
            "  export capstan:operator/error-handler@0.1.0;\n"
            "  export capstan:operator/description@0.1.0;\n}\n",
        )

    def test_a_module_without_decorators_is_refused(self) -> None:
        text = "error: empty_one.py registers nothing: it needs a function with @reconcile or @desired(…), for example"
        self.assertEqual(self.said("empty_one.py", "x = 1\n"), text)

    def test_a_module_that_registers_twice_is_refused(self) -> None:
        twice = COMMITTED + '@desired("service")\ndef other(page): return {}\n'
        text = "error: two functions are the desired state for `service`: twice_one.service and twice_one.other"
        self.assertEqual(self.said("twice_one.py", twice), text)

    def test_a_module_that_fails_shows_its_stack_from_its_own_line_on(self) -> None:
        said = self.said("failing_one.py", "def fail():\n    return 1 / 0\n\nfail()\n")
        self.assertRegex(said, r'^error: failing_one.py can\'t be imported\n  File "failing_one.py", line 4, in <module>')
        self.assertTrue(said.endswith("ZeroDivisionError: division by zero"), said)

    def test_text_that_is_no_python_shows_its_line_and_who_imports_it_alone(self) -> None:
        wrong = "def broken(:\n    pass\n"
        said = self.said("wrong_one.py", wrong).splitlines()
        self.assertEqual(said[:3], ["error: wrong_one.py can't be imported", '  File "wrong_one.py", line 1', "    def broken(:"])
        self.assertTrue(said[-1].startswith("SyntaxError: "), said)
        self.assertEqual(len(said), 5, said)
        (self.folder / "wrong_two.py").write_text(wrong)
        said = self.said("importing_one.py", "import wrong_two\n").splitlines()
        files = [line for line in said if "File" in line]
        self.assertEqual(files, ['  File "importing_one.py", line 1, in <module>', '  File "wrong_two.py", line 1'])

    def test_asking_the_daemon_while_being_imported_is_refused(self) -> None:
        said = self.said("asking_one.py", "from capstan import config\nTITLE = config.get()\n")
        self.assertIn("Capstan's functions work while the daemon calls the component, not while it is imported", said)

    def test_a_name_that_cannot_be_imported_is_refused(self) -> None:
        table = [
            ("web-page.py", "error: 'web-page' can't be imported: a module's name consists of letters, digits and _"),
            ("json.py", "error: there is another module 'json': call yours differently, such as json_operator.py"),
            ("page.txt", "error: page.txt is neither a Python file nor a folder with an __init__.py"),
        ]
        for name, text in table:
            with self.subTest(name):
                self.assertEqual(self.said(name, COMMITTED), text)
        self.assertEqual(self.said("fine.py", COMMITTED, "-p", "/no/such"), "error: there is no folder /no/such")

    def test_without_componentize_py_it_is_said_how_to_get_it(self) -> None:
        with mock.patch.dict(sys.modules, {"componentize_py": None}):
            self.assertTrue(self.said("whole_one.py", COMMITTED).startswith("error: componentize-py is not installed: `pip install"))

    def test_errors_of_the_component_name_files_as_they_are_called_here(self) -> None:
        entry = '  File "/0/capstan_component.py", line 5, in <module>\n    import app\n'
        text = f'Traceback:\n{entry}  File "/1/app.py", line 1\nModuleNotFoundError: x\n\nCaused by:\n    x'
        self.assertEqual(
            build._at_home(text, [Path("/t"), Path("/a/b")]), 'Traceback:\n  File "/a/b/app.py", line 1\nModuleNotFoundError: x'
        )


class WhatIsKept(Registering):
    """Instead of the tool, what makes another component each time, which imports what it is told."""

    def setUp(self) -> None:
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name).resolve()
        self.output = self.folder / "kept_one.wasm"
        self.imports = ["/0/capstan_component.py", "/1/kept_one.py", "/1/only_there.py"]
        self.write("kept_one.py", "from pathlib import Path\nPAGE = Path(__file__).with_name('page.html').read_text()\n" + COMMITTED)
        self.write("only_there.py", "x = 1\n")
        self.write("page.html", "<html>")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def componentize(self, *, python_path: list[str], output_path: str, **_: object) -> None:
        Path(python_path[0], "imported").write_text("\n".join(self.imports))
        Path(output_path).write_bytes(b"\0asm" + os.urandom(32))

    def built(self) -> bytes:
        registry.registered.clear()
        sys.modules.pop("kept_one", None)
        tool = types.ModuleType("componentize_py")
        tool.__dict__["componentize"] = self.componentize
        with mock.patch.dict(sys.modules, {"componentize_py": tool}):
            self.assertEqual(build.build(self.folder / "kept_one.py", self.output).size, self.output.stat().st_size)
        return self.output.read_bytes()

    def test_what_is_built_of_the_same_stays_the_same(self) -> None:
        first = self.built()
        self.write("test_kept_one.py", "# no part of it\n")
        self.assertEqual(self.built(), first)

    def test_what_any_file_decides_that_is_in_it_is_built_anew(self) -> None:
        for name, text in [
            ("kept_one.py", "from capstan import desired\n@desired\ndef other(page): return {}\n"),
            ("only_there.py", "x = 2\n"),
            ("kept_one.py", "from pathlib import Path\nPAGE = Path(__file__).with_name('page.html').read_text()\n" + COMMITTED),
            ("page.html", "<html lang='en'>"),
        ]:
            with self.subTest(name):
                before = self.built()
                self.write(name, text)
                self.assertNotEqual(self.built(), before)
        before = self.built()
        (self.folder / "other-1.0.dist-info").mkdir()
        self.assertNotEqual(self.built(), before, "a package is installed, which it may choose")

    def test_what_is_not_as_it_was_built_is_built_anew(self) -> None:
        for change in [
            lambda component: component + b"\0",
            lambda component: component[:10] + b"x" + component[11:],
            lambda component: component.replace(b'"0/only_there.py"', b'"9/only_there.py"'),
            lambda component: component.replace(b'"0/only_there.py"', b'{"only_there": 0}'),
            lambda component: component[:-20],
            lambda _: b"capstan-built-of[]",
            lambda _: b"",
        ]:
            changed = change(self.built())
            self.output.write_bytes(changed)
            self.assertNotEqual(self.built(), changed)


class TheReadme(Registering):
    def test_its_example_passes_its_test(self) -> None:
        operator, test, *_ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        webpage = types.ModuleType("webpage")
        exec(operator, webpage.__dict__)
        with mock.patch.dict(sys.modules, {"webpage": webpage}):
            names: dict[str, object] = {}
            exec(test, names)
            [function] = [value for name, value in names.items() if name.startswith("test_")]
            function()
