"""Makes a component of an author's module: it exports what the module registers, and nothing else."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from capstan import _kept, _start, registry
from capstan.registry import Interface

CONTRACT = "0.1.0"
"""The version of the contract that components are built for."""

_PACKAGE = Path(__file__).parent
_INSTALL = "componentize-py is not installed: `pip install -r requirements.txt` in the SDK's folder installs the right one"
_WORLD = "capstan:component/component"
_DESCRIPTION = "description"
"""The interface that each component exports: which names its functions answer to."""
_ENTRY = "capstan_component"


class BuildError(Exception):
    """Why there is no component."""


@dataclass(frozen=True)
class Built:
    """A component."""

    path: Path
    """Where it is."""
    size: int
    """Its bytes."""
    exports: list[str]
    """The functions in it, for people."""


def build(module: Path, output: Path, paths: Sequence[Path] = ()) -> Built:
    """Builds a component from a module, which is a file or a package's folder. Its imports are found beside it, in `paths`, and where
    Python finds them here. A component that is there and was built of the same stays. Raises a `BuildError`, or what the module raises."""
    with _kept.watched() as opened:
        name, search = load(module, paths)
    if not registry.registered:
        raise BuildError(f"{module} registers nothing: it needs a function with @reconcile or @desired(…), for example")
    if sentences := registry.twice():
        raise BuildError("\n".join(sentences))
    for entry in registry.registered:
        entry.prepare()
    inputs = [*_inputs(name), *_kept.described(opened, search)]
    component = output.read_bytes() if output.is_file() else b""
    if not _kept.is_built_of(component, inputs, search):
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="capstan-", dir=output.parent) as folder:
            part = Path(folder) / "component.wasm"
            imported = _componentize(name, search, Path(folder), part)
            component = _kept.marked(part.read_bytes(), inputs, imported, search)
            part.write_bytes(component)
            os.replace(part, output)
    return Built(output, len(component), [str(entry) for entry in registry.registered])


def load(module: Path, paths: Sequence[Path] = ()) -> tuple[str, list[Path]]:
    """Imports a module; returns its name, and where its imports are looked for. Raises a `BuildError`, or what the module raises."""
    module = module.resolve()
    name = _module_name(module)
    # Beside the module first, as for a script; and not what happens to be in the working folder.
    search = [module.parent, *(_folder(path) for path in paths), *_search_path()]
    with _importing_from(search):
        importlib.import_module(name)
    return name, search


def _module_name(module: Path) -> str:
    """Returns the name that a module is imported by."""
    if not (module.is_file() and module.suffix == ".py") and not (module / "__init__.py").is_file():
        raise BuildError(f"{module} is neither a Python file nor a folder with an __init__.py")
    name = module.stem if module.is_file() else module.name
    if not name.isidentifier():
        raise BuildError(f"{name!r} can't be imported: a module's name consists of letters, digits and _")
    if name in sys.stdlib_module_names or name in ("capstan", "componentize_py", "wit_world", _ENTRY):
        raise BuildError(f"there is another module {name!r}: call yours differently, such as {name}_operator.py")
    return name


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise BuildError(f"there is no folder {path}")
    return path.resolve()


def _search_path() -> list[Path]:
    """Returns where Python looks for modules here, but for its standard library: a component has its own."""
    own = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    own |= {folder / "lib-dynload" for folder in own} | {Path.cwd()}
    sites = {Path(folder).resolve() for folder in [*site.getsitepackages(), site.getusersitepackages()]}
    found = [Path(entry).resolve() for entry in sys.path if entry]
    found = [folder for folder in found if folder.is_dir() and (folder in sites or folder not in own)]
    if _PACKAGE.parent not in found:
        found.insert(0, _PACKAGE.parent)
    return list(dict.fromkeys(found))


@contextmanager
def _importing_from(search: list[Path]) -> Iterator[None]:
    before = sys.path, sys.dont_write_bytecode
    sys.path = [*map(str, search), *sys.path]
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path, sys.dont_write_bytecode = before


def _inputs(name: str) -> list[str]:
    """Returns what decides what a component is, beside the files that the author's module is made of."""
    try:
        tool = metadata.version("componentize-py")
    except metadata.PackageNotFoundError:
        tool = "none"
    interfaces = registry.interfaces()
    own = [*_kept.files(_PACKAGE, "*.py"), *_kept.files(_PACKAGE / "wit", "*.wit")]
    return [tool, world(interfaces), _entry(name, interfaces), *own]


def _componentize(name: str, search: list[Path], folder: Path, output: Path) -> list[str]:
    """Makes the component. Returns which files were imported into it, as `NUMBER/PATH` in the folder of that number in `search`."""
    try:
        import componentize_py  # type: ignore[import-untyped]
    except ImportError as error:
        raise BuildError(_INSTALL) from error
    interfaces = registry.interfaces()
    contract = _contract(folder)
    (folder / "component.wit").write_text(world(interfaces))
    entry = folder / "entry"
    entry.mkdir()
    (entry / f"{_ENTRY}.py").write_text(_entry(name, interfaces))
    mounted = [entry, *search]
    environment = {
        # Otherwise it also looks for a virtual environment and adds what that has; all of it is in `mounted` already.
        "VIRTUAL_ENV": str(entry),
        # Its error is for people, and what they need is in its text.
        "RUST_BACKTRACE": "0",
    }
    try:
        with _environment(environment):
            componentize_py.componentize(
                wit_path=[str(contract), str(folder / "component.wit")],
                worlds=[_WORLD],
                features=[],
                all_features=False,
                world_module=None,
                python_path=[str(path) for path in mounted],
                module_worlds=[],
                app_name=_ENTRY,
                output_path=str(output),
                stub_wasi=False,
                import_interface_names=[],
                export_interface_names=[],
                full_names=False,
                intersect_world=None,
            )
    except Exception as error:
        raise BuildError(_at_home(str(error), mounted)) from error
    return _imported((entry / _start.IMPORTED).read_text())


def world(interfaces: Sequence[Interface]) -> str:
    """Returns the world of a component that exports these, and describes them."""
    names = [*_names(interfaces), _DESCRIPTION]
    exports = "".join(f"  export capstan:operator/{name}@{CONTRACT};\n" for name in names)
    return f"package capstan:component;\n\nworld component {{\n  include capstan:operator/imports@{CONTRACT};\n{exports}}}\n"


def _entry(name: str, interfaces: Sequence[Interface]) -> str:
    """Returns the module that the component is made from. All that it imports is part of the component, and nothing else."""
    modules = [(name.replace("-", "_"), _class_name(name)) for name in [*_names(interfaces), _DESCRIPTION]]
    imports = "".join(f"from capstan._wit.{module} import {name}\n" for module, name in modules)
    # The order matters: nothing may be written into the author's folder, and `logging` is set up before it is used.
    return f"import sys\nsys.dont_write_bytecode = True\nfrom capstan import _start\n_start.before()\nimport {name}\n{imports}_start.after(__file__)\n"


def _imported(paths: str) -> list[str]:
    """Returns the files of the author that a component says to have imported, one a line: `/1/app.py` is in the first folder."""
    found = (path.lstrip("/").partition("/") for path in paths.splitlines())
    return [f"{int(number) - 1}/{path}" for number, _, path in found if number != "0"]


def _names(interfaces: Sequence[Interface]) -> list[str]:
    """Returns the contract's names of interfaces, each once: one may have several functions."""
    return list(dict.fromkeys(interface.wit for interface in interfaces))


def _class_name(interface: str) -> str:
    return interface.title().replace("-", "")


def _contract(folder: Path) -> Path:
    """Returns a folder with the contract alone, without the documents beside it. In the repository, the package's is a link."""
    found = _PACKAGE / "wit"
    if not (found / "types.wit").is_file():
        raise BuildError(f"the contract is missing: there is no {found}")
    copy = folder / "contract"
    copy.mkdir()
    for file in found.glob("*.wit"):
        shutil.copy(file, copy)
    return copy


def _at_home(text: str, search: list[Path]) -> str:
    """Returns an error of the build with the folders as they are called here: in a component they are `/0`, `/1`, …"""
    # What comes after is the same once more, as seen from the tool.
    text = text.split("\nCaused by:")[0].strip()
    # The module that imports the author's is ours.
    text = re.sub(r'^  File "/0/.*\n(    .*\n)*', "", text, flags=re.MULTILINE)
    for number, folder in enumerate(search):
        text = text.replace(f'"/{number}/', f'"{folder}/')
    return text


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
