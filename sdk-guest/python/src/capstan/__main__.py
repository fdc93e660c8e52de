"""The command line: `python -m capstan build app.py -o app.wasm`."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from capstan.build import BuildError, build

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
    given = parser.parse_args(arguments)
    output = given.output or Path(f"{given.module.stem}.wasm")
    try:
        built = build(given.module, output, given.path)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        # The author's module: the stack begins there.
        frames = traceback.extract_tb(error.__traceback__)
        inside = next((n for n, frame in enumerate(frames) if Path(frame.filename).parent == given.module.resolve().parent), 0)
        lines = traceback.format_list(frames[inside:]) + traceback.format_exception_only(type(error), error)
        print(f"error: {given.module} can't be imported\n{''.join(lines)}".rstrip(), file=sys.stderr)
        return 1
    print(f"{built.path} ({built.size / 1e6:.1f} MB) has {', '.join(built.exports)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
