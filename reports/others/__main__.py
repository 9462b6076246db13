"""Judge the implementations of ``others.toml``; fails if a verdict is not what is on record."""

import argparse
import sys
from pathlib import Path

from reports.others import catalogue, judging, publishing
from reports.others.environments import python_of


def main() -> int:
    """Judge one after the other, each in its own environment."""
    known = catalogue.load()
    parser = argparse.ArgumentParser(prog="python -m reports.others", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--home", type=Path, required=True, help="a folder for environments")
    parser.add_argument("--workers", type=int, default=2, help="processes of one run (default: 2)")
    parser.add_argument("--publish", action="store_true", help="add the verdicts to reports/")
    options = parser.parse_args()
    unknown = set(options.name) - set(known)
    if unknown:
        parser.error(f"there is no {min(unknown)}; there are {', '.join(known)}")
    wrong = []
    for name in options.name or known:
        found = _judge(known[name], options)
        wrong += [f"{name}: {text}" for text in found]
    print("\n".join(wrong) or "every verdict is what is on record", flush=True)
    return int(bool(wrong))


def _judge(wanted: catalogue.Implementation, options: argparse.Namespace) -> list[str]:
    home = options.home.resolve()
    python = python_of(wanted, home)
    verdicts = home / f"{wanted.name}.jsonl"
    status = judging.run(wanted, python, verdicts, workers=options.workers)
    wrong = list(judging.surprises(verdicts, status))
    if options.publish and not wrong:
        print(publishing.publish(wanted, verdicts))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
