"""The command line: `python -m capstan build app.py -o app.wasm`, and `python -m capstan types app.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from capstan import types
from capstan._schema import TypesError, said
from capstan._stack import stack
from capstan.build import BuildError, build, load

_EXAMPLES = """\
examples:
  python -m capstan build webpage.py
  python -m capstan build webpage.py -o out/webpage.wasm
  pip install --target vendor jsonpatch && python -m capstan build webpage.py -p vendor
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m capstan", description="Operators for Capstan, in Python.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "build",
        help="build a component",
        description="Builds a component from a module. What it exports follows from the functions that are decorated.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("module", type=Path, metavar="MODULE", help="a Python file, or the folder of a package")
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="the component; by default MODULE.wasm")
    command.add_argument(
        "-p", "--path", type=Path, action="append", default=[], metavar="FOLDER", help="look for imports there too; may be repeated"
    )
    command = commands.add_parser(
        "types",
        help="say what the types are, for `capstan crd`",
        description="Prints what the types of a module say that are marked with @resource, as JSON: `capstan crd` makes the CRD of it.",
    )
    command.add_argument("module", type=Path, metavar="MODULE", help="a Python file, or the folder of a package")
    command.add_argument("-p", "--path", type=Path, action="append", default=[], metavar="FOLDER", help="look for imports there too")
    given = parser.parse_args(arguments)
    try:
        if given.command == "types":
            load(given.module, given.path)
            if not types.resources:
                raise TypesError(f"{given.module} has no custom resource: mark its class with @resource of capstan.types")
            print(said(types.resources))
            return 0
        built = build(given.module, given.output or Path(f"{given.module.stem}.wasm"), given.path)
    except (BuildError, TypesError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        told = stack(error).removeprefix("Traceback (most recent call last):\n")
        print(f"error: {given.module} can't be imported\n{told}", file=sys.stderr)
        return 1
    print(f"{built.path} ({built.size / 1e6:.1f} MB) has {', '.join(built.exports)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
