"""Publish runs and build the pages.

``python -m reports add FILE [FILE ...]`` writes a file to ``reports/results`` (verdicts) or
``reports/benchmarks`` and builds the pages. ``python -m reports build`` only builds the pages:
those of reports, and those of the clauses and registers that have changed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.publishing import specification
from reports.publishing.publish import build, publish

HERE = Path(__file__).resolve().parent


def main(arguments: Sequence[str] | None = None, *, folder: Path = HERE) -> int:
    """Run one command on the reports in ``folder``; return 1 if a file is not accepted."""
    options = _build_parser().parse_args(arguments)
    try:
        if options.command != "build":
            print(publish(options.files, options.target, options.hardware, folder=folder))
        print(*build(folder), *specification.write(), sep="\n")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("build", help="build all generated pages")
    add = commands.add_parser("add", help="publish runs, then build the pages")
    add.add_argument(
        "files", type=Path, nargs="+", help="benchmarks (*.json) or verdicts (*.jsonl)"
    )
    add.add_argument("--target", help="the implementation (default: as in the file, else impl)")
    add.add_argument("--hardware", help="a word for the machine (default: the accelerator)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
