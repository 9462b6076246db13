"""Update ``measured.json``: the ratios of the runs that the floors are set from.

``python -m bench.measured FILE [FILE ...]`` reads JSON of pytest-benchmark, one file a run; three
runs or more. It replaces the ratios of the rows that these runs measure and keeps those of other
rows. A floor in ``floors.toml`` is 80 % of the least ratio of its row.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.compare import ratios

__all__ = ["MEASURED", "ratios_of", "updated"]

MEASURED = Path(__file__).with_name("measured.json")


def ratios_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return date, commit, processor and the ratio of each row of a saved run."""
    return {
        "date": run["datetime"][:10],
        "commit": run["commit_info"]["id"],
        "processor": run["machine_info"]["cpu"].get("brand_raw", ""),
        "ratios": {ratio.group: round(ratio.value, 3) for ratio in ratios(run, {})},
    }


def updated(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``new`` after ``old``, without the rows of ``old`` that ``new`` measures again."""
    again = {row for run in new for row in run["ratios"]}
    rest = [
        {**run, "ratios": {row: run["ratios"][row] for row in run["ratios"] if row not in again}}
        for run in old
    ]
    return [*(run for run in rest if run["ratios"]), *new]


def main() -> None:
    """Update ``measured.json`` with the ratios of saved runs."""
    parser = argparse.ArgumentParser(prog="python -m bench.measured", description=main.__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="JSON of pytest --benchmark-json")
    files = parser.parse_args().files
    if len(files) < 3:
        parser.error(f"expected three runs or more, got {len(files)}")
    new = [ratios_of(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    old = json.loads(MEASURED.read_text(encoding="utf-8"))
    MEASURED.write_text(json.dumps(updated(old, new), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
