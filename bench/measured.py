"""Update ``measured.json``, the measured ratios from which the floors are derived.

``python -m bench.measured FILE FILE FILE ...`` reads JSON of pytest-benchmark from three or more
runs. It replaces the ratios of the rows that these runs measured, and keeps the ratios of all
other rows. The floor of a row in ``floors.toml`` is 80 % of the row's smallest ratio.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.compare import ratios

__all__ = ["MEASURED", "merge_runs", "summarize_run"]

MEASURED = Path(__file__).with_name("measured.json")


def summarize_run(run: dict[str, Any]) -> dict[str, Any]:
    """Return the date, commit, processor and ratios of a saved run."""
    return {
        "date": run["datetime"][:10],
        "commit": run["commit_info"]["id"],
        "processor": run["machine_info"]["cpu"].get("brand_raw", ""),
        "ratios": {ratio.group: round(ratio.value, 3) for ratio in ratios(run, {})},
    }


def merge_runs(
    old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Remove from ``old`` each ratio that ``new`` measures again; return the rest, then ``new``.

    Args:
        old: The runs in ``measured.json``.
        new: Runs as :func:`summarize_run` returns them.
    """
    measured_again = {row for run in new for row in run["ratios"]}
    kept = [
        {
            **run,
            "ratios": {
                row: ratio for row, ratio in run["ratios"].items() if row not in measured_again
            },
        }
        for run in old
    ]
    return [*(run for run in kept if run["ratios"]), *new]


def main() -> None:
    """Update ``measured.json`` with the ratios of saved runs."""
    parser = argparse.ArgumentParser(prog="python -m bench.measured", description=main.__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="JSON of pytest --benchmark-json")
    files = parser.parse_args().files
    if len(files) < 3:
        parser.error(f"expected three runs or more, got {len(files)}")
    new = [summarize_run(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    old = json.loads(MEASURED.read_text(encoding="utf-8"))
    MEASURED.write_text(json.dumps(merge_runs(old, new), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
