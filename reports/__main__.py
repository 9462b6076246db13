"""Publish runs and build the pages.

``python -m reports add FILE [FILE ...]`` writes a report below ``reports/results`` and builds;
``python -m reports build`` builds ``reports/MATRIX.md`` and ``reports/site`` only.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.publishing.pages import build

HERE = Path(__file__).resolve().parent


def main(arguments: Sequence[str] | None = None, *, folder: Path = HERE) -> int:
    """Run one command on ``folder``; return 1 if a file is refused."""
    options = _parser().parse_args(arguments)
    try:
        if options.command != "build":
            # Imported here: only publishing needs py-cpuinfo, a dependency of pytest-benchmark.
            from reports.publishing.publish import publish

            results = folder / "results"
            print(publish(options.files, options.target, options.hardware, folder=results))
        print(build(folder))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("build", help="build reports/MATRIX.md and reports/site")
    add = commands.add_parser("add", aliases=["publish"], help="publish runs, then build")
    add.add_argument(
        "files", type=Path, nargs="+", help="benchmarks (*.json) or verdicts (*.jsonl)"
    )
    add.add_argument("--target", help="the implementation (default: what the file says, or impl)")
    add.add_argument("--hardware", help="a word for the machine (default: the accelerator)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
