"""Validate implementations of torch.nn.parallel; fail if a verdict differs from its record."""

import argparse
import sys
from pathlib import Path

from reports.others import catalogue, validation
from reports.others.environments import prepare_environment
from reports.publishing import specification
from reports.publishing.publish import REPORTS, build, check_readme, publish
from spec_tests.reporting import runs


def main() -> int:
    """Validate each implementation in its own environment; return 1 if a verdict differs."""
    known = catalogue.load()
    parser = argparse.ArgumentParser(prog="python -m reports.others", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"{', '.join(known)} (default: all but impl-...)")
    parser.add_argument("--home", type=Path, required=True, help="the folder of environments")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="also run impl; publish the verdicts, build the pages, and check the README's counts",
    )
    options = parser.parse_args()
    if unknown := set(options.name) - set(known):
        parser.error(f"there is no {min(unknown)}; there are {', '.join(known)}")
    names = [name for name, each in known.items() if options.publish or each.target != "impl"]
    unexpected = []
    for name in options.name or names:
        differences = _validate(known[name], options)
        unexpected += [f"{name}: {text}" for text in differences]
    if options.publish:
        print(*build(REPORTS), *specification.write(), sep="\n")
        unexpected += check_readme(catalogue.ROOT / "README.md")
    print("\n".join(unexpected) or "every verdict matches the record", flush=True)
    return int(bool(unexpected))


def _validate(implementation: catalogue.Implementation, options: argparse.Namespace) -> list[str]:
    """Return a text for each verdict of ``implementation`` that differs from its record."""
    home = options.home.resolve()
    verdicts = home / f"{implementation.name}.jsonl"
    status = validation.run(implementation, prepare_environment(implementation, home), verdicts)
    record = None
    if implementation.wheel:  # The record is the published run, which --publish replaces.
        published = {run.about["target"]: run.verdicts for run in runs.load(REPORTS)}
        record = {} if options.publish else published.get(implementation.reported)
    unexpected = list(validation.find_unexpected(verdicts, status, record))
    if options.publish and not unexpected:
        hardware = f"sim-{implementation.python}" if implementation.python else None
        print(publish([verdicts], implementation.reported, hardware), flush=True)
    return unexpected


if __name__ == "__main__":
    sys.exit(main())
