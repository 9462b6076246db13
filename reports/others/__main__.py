"""Validate the implementations in ``others.toml``; fail if a verdict differs from its record."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.others import catalogue, validation, wheels
from reports.others.environments import prepare_environment
from reports.publishing.publish import REPORTS, build, publish
from spec_tests.reporting.runs import slug

#: The folder of the published runs.
RESULTS = REPORTS / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Validate the implementations, each in its own environment; return 1 if a verdict differs."""
    known = catalogue.load()
    parser = argparse.ArgumentParser(prog="python -m reports.others", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"{', '.join(known)} (default: all)")
    parser.add_argument(
        "--home", type=Path, required=True, help="the folder for the virtual environments"
    )
    parser.add_argument(
        "--publish", action="store_true", help="publish the verdicts in reports/results"
    )
    options = parser.parse_args(arguments)
    unknown = set(options.name) - set(known)
    if unknown:
        parser.error(f"there is no {min(unknown)}; there are {', '.join(known)}")
    unexpected = []
    for name in options.name or known:
        differences = _validate(known[name], options)
        unexpected += [f"{name}: {text}" for text in differences]
    print("\n".join(unexpected) or "every verdict matches the record", flush=True)
    return int(bool(unexpected))


def _validate(implementation: catalogue.Implementation, options: argparse.Namespace) -> list[str]:
    """Return a text for each verdict of ``implementation`` that differs from its record."""
    environments = options.home.resolve()
    python = prepare_environment(implementation, environments)
    verdicts = environments / f"{implementation.name}.jsonl"
    if implementation.wheel:
        folder = validation.wheels_folder(environments)
        wheels.unpack(implementation.version, implementation.wheel, folder)
    status = validation.run(implementation, python, verdicts)
    if status not in validation.COMPLETE:
        return [f"the run did not end: exit status {status}"]
    if implementation.wheel:
        published = RESULTS / slug(implementation.report_target)
        file = published / f"torch-{implementation.torch}_sim.json"
        unexpected = [] if options.publish else list(validation.find_changed(verdicts, file))
    else:
        unexpected = list(validation.find_unexpected(verdicts, status))
    if options.publish and not unexpected:
        print(publish([verdicts], implementation.report_target), *build(REPORTS), sep="\n")
    return unexpected


if __name__ == "__main__":
    sys.exit(main())
