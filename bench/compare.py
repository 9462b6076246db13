"""Print reference time over impl time for a saved run, and hold the ratios to their floors.

``python -m bench.compare FILE`` reads pytest-benchmark's JSON. A ratio of medians below its floor
in ``floors.toml`` makes it exit with 1. Absolute times are never judged.
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path

from spec_tests.site.ratios import LEGEND, Ratio, ratios

__all__ = ["FLOORS", "LEGEND", "Ratio", "line", "main", "ratios"]

FLOORS = Path(__file__).with_name("floors.toml")


def line(ratio: Ratio) -> str:
    """One row of the table."""
    floor = "-" if ratio.floor is None else f"{ratio.floor:.2f}"
    verdict = "ok" if ratio.passes else "BELOW"
    spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{floor:>6}  {verdict}"


def main() -> int:
    """Print the ratios of a saved run; return 1 if one is below its floor."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=main.__doc__)
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    path = parser.parse_args().file
    try:
        run = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        parser.error(f"{path}: {error}")
    found = list(ratios(run, tomllib.loads(FLOORS.read_text())["floors"]))
    print(f"{'reference / impl':<52}{'median':>8}  {'quartiles':<18}{'floor':>6}")
    for ratio in found:
        print(line(ratio))
    return int(not found or not all(ratio.passes for ratio in found))


if __name__ == "__main__":
    sys.exit(main())
