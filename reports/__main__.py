"""Publish a run, and make the pages of all.

``python -m reports build`` makes ``reports/site`` and ``reports/MATRIX.md``;
``python -m reports add FILE`` publishes a file of verdicts, whoever wrote it, and does the same.
"""

import argparse
import sys
from pathlib import Path

from spec_tests.site import checked, markdown
from spec_tests.site.make import make, site_of
from spec_tests.site.matrix import Matrix
from spec_tests.site.runs import Shelf

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Do what the arguments ask for; 1 if a file is refused, in one sentence."""
    options = _parser().parse_args()
    try:
        if options.command == "add":
            from reports.publish import publish

            print(publish([options.file], options.target, options.hardware, folder=HERE))
        (HERE / "MATRIX.md").write_text(matrix_page(HERE), encoding="utf-8")
        print(make(HERE, (), HERE / "site"))
    except checked.RefusedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def matrix_page(folder: Path) -> str:
    """MATRIX.md: published runs only, so that it is the same in every checkout."""
    site = site_of(folder)
    published = Shelf([run for run in site.shelf.runs if run.published], site.shelf.benches)
    return markdown.page(Matrix.of(published, site.known))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("build", help="make reports/site and reports/MATRIX.md")
    add = commands.add_parser("add", help="publish a file of verdicts, then build")
    add.add_argument("file", type=Path)
    add.add_argument("--target", help="the name of its column (default: what the file says)")
    add.add_argument("--hardware", help="a word for the machine (default: the accelerator)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
