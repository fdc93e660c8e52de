"""Decides whether a component that is there was built of the same: its last section says of what. Python's memory, as it is after the modules
have been imported, has its own seeds and is never the same twice, so what is not built anew stays the same."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAME = b"capstan-built-of"
"""The name of that section, which nobody else reads."""

_reads: list[set[str]] = []
"""Who wants to know which files are opened."""
_hooked: list[bool] = []


def marked(component: bytes, inputs: Sequence[str], imported: Sequence[str], search: Sequence[Path]) -> bytes:
    """Returns a component with the section that says of what it was built: of `inputs`, and of files that were imported while it was made, each
    `NUMBER/PATH` in the folder of that number in `search`."""
    files = [(name, _digest(_file(name, search))) for name in imported]
    digest = hashlib.sha256(json.dumps([*inputs, *files]).encode() + component).hexdigest()
    content = bytes([len(_NAME)]) + _NAME + json.dumps([digest, *imported]).encode()
    return component + b"\0" + _leb128(len(content)) + content


def is_built_of(component: bytes, inputs: Sequence[str], search: Sequence[Path]) -> bool:
    """Says whether a component was built of these, and is as it was built."""
    before, name, said = component.rpartition(_NAME)
    if not name:
        return False
    try:
        found: Any = json.loads(said)
    except ValueError:
        return False
    imported = found[1:] if isinstance(found, list) else []
    if not all(isinstance(path, str) and _is_in(path, search) for path in imported):
        return False
    # Before the name are its length, the section's length and its sort.
    end = len(before) - 2 - len(_leb128(1 + len(_NAME) + len(said)))
    return end > 0 and marked(component[:end], inputs, imported, search) == component


@contextmanager
def watched() -> Iterator[set[str]]:
    """Notes which files are opened, such as texts that a module reads while it is imported."""
    if not _hooked:
        # It can't be taken away again.
        sys.addaudithook(_note)
        _hooked.append(True)
    files: set[str] = set()
    _reads.append(files)
    try:
        yield files
    finally:
        _reads.remove(files)


def described(opened: Iterable[str], search: Sequence[Path]) -> list[str]:
    """Returns what says which files of these folders are imported or opened here and what is in them, and which packages are installed."""
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {Path(path).resolve() for path in [*modules, *opened] if path}
    files = [f"{path} {_digest(path)}" for path in paths if path.suffix != ".pyc" and any(path.is_relative_to(folder) for folder in search)]
    # What a package chooses in a component may be another module than here.
    packages = [path.name for folder in search for path in folder.glob("*.dist-info")]
    return [*sorted(files), *sorted(packages), *map(str, search)]


def files(folder: Path, pattern: str) -> list[str]:
    """Returns what says what is in the files of a folder, and in those below it."""
    return [f"{path.relative_to(folder)} {_digest(path)}" for path in sorted(folder.rglob(pattern))]


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _reads and isinstance(arguments[0], str):
        for files in _reads:
            files.add(arguments[0])


def _is_in(name: str, search: Sequence[Path]) -> bool:
    number, _, _ = name.partition("/")
    return number.isdecimal() and int(number) < len(search)


def _file(name: str, search: Sequence[Path]) -> Path:
    number, _, path = name.partition("/")
    return search[int(number)] / path


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return "none"


def _leb128(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
