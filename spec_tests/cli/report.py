"""The command ``report``: print saved verdicts, and make web pages of all runs."""

import argparse
import sys
from pathlib import Path

from spec_tests.cli import doctor
from spec_tests.harness.conformance import verdicts

__all__ = ["report"]

#: The modules that pip installs with ``[report]``.
MODULES = ("jinja2", "jsonschema", "matplotlib")
EXTRA = "remedy: pip install 'torch-parallel-spec[report]'"


def report(options: argparse.Namespace) -> int:
    """Print the table of each file, make the site, and return the exit status.

    Raises:
        validated_files.RefusedError: A file is not valid, or the site cannot be written.
    """
    missing = doctor.missing(MODULES)
    if missing:
        print(f"missing: {', '.join(missing)}\n{EXTRA}", file=sys.stderr)
        return 1
    from spec_tests.site import validated_files

    for path in options.file:
        _, tests = validated_files.read_verdicts(path)
        declared = verdicts.declared_by_clause(tests)
        print("\n".join(verdicts.table(verdicts.by_clause(tests), declared)))
    try:
        print(_make_site(options))
    except OSError as error:  # the site cannot be written
        raise validated_files.RefusedError(str(error)) from None
    return 0


def _make_site(options: argparse.Namespace) -> str:
    from spec_tests.site import make, runs

    default = Path(make.FOLDER)
    folder = options.reports or (default if any(default.glob(runs.RESULTS)) else None)
    site = options.to or (folder / "site" if folder else Path("site"))
    return make.make(folder, options.file, site)
