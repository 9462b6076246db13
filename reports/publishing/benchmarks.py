"""The data and the summary of a report on benchmarks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import compare

__all__ = ["format_summary", "read"]

_STATS = ("min", "q1", "median", "q3", "rounds")
#: The fields that are equal in all runs of a report.
_MACHINE = ("torch", "python_version", "devices", "threads", "gpu", "cuda")
_HEAD = (
    "| row | reference, ms | impl, ms | reference / impl | quartiles | floor |",
    "|---|---|---|---|---|---|",
)


def read(paths: Sequence[Path]) -> dict[str, Any]:
    """Return one or more runs of one machine, without their samples.

    Args:
        paths: Files written by ``pytest --benchmark-json``.

    Returns:
        ``machine``: processor, cores, versions and devices. ``runs``: ``datetime``, ``commit``,
        ``dirty`` and ``benchmarks`` of each file. A benchmark has ``group``, ``fullname``,
        ``extra_info`` and ``stats``: minimum, quartiles and median in seconds, and the number of
        rounds.

    Raises:
        ValueError: A file was not written by pytest-benchmark, comes from another machine than
            the first, or holds other benchmarks.
    """
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        if not {"machine_info", "benchmarks"} <= run.keys():
            raise ValueError(f"{path} was not written by pytest --benchmark-json")
        if _machine(run) != _machine(runs[0]):
            raise ValueError(f"{path} and {paths[0]} come from different machines")
        if missing := _names(run) ^ _names(runs[0]):
            raise ValueError(f"only one of {path} and {paths[0]} has {min(missing)}")
    return {"machine": _machine(runs[0]), "runs": [_without_samples(run) for run in runs]}


def _names(run: dict[str, Any]) -> set[str]:
    return {each["fullname"] for each in run["benchmarks"]}


def _machine(run: dict[str, Any]) -> dict[str, Any]:
    info = run["machine_info"]
    cpu = {"cpu": info["cpu"].get("brand_raw", ""), "cores": info["cpu"]["count"]}
    return cpu | {key: info[key] for key in _MACHINE if key in info}


def _without_samples(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "datetime": run["datetime"],
        "commit": run["commit_info"]["id"],
        "dirty": run["commit_info"].get("dirty", False),
        "benchmarks": [_benchmark(each) for each in run["benchmarks"]],
    }


def _benchmark(each: dict[str, Any]) -> dict[str, Any]:
    kept = {key: each[key] for key in ("group", "fullname", "extra_info")}
    return {**kept, "stats": {key: each["stats"][key] for key in _STATS}}


def format_summary(data: dict[str, Any], floors: dict[str, float]) -> str:
    """Return the ratios and medians of all runs as a Markdown table."""
    machine, runs = data["machine"], data["runs"]
    ratios = [list(compare.ratios(run, floors)) for run in runs]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['devices'])}; "
        f"torch {machine['torch']}, Python {machine['python_version']}; "
        f"{machine.get('threads', 'unknown')} intra-op thread(s); {len(runs)} run(s).",
        "",
        compare.LEGEND,
        "",
        *_HEAD,
        *(_format_row(rows, runs) for rows in zip(*ratios, strict=True)),
    ]
    return "\n".join(lines)


def _format_row(ratios: Sequence[compare.Ratio], runs: Sequence[dict[str, Any]]) -> str:
    group, floor = ratios[0].group, ratios[0].floor
    times = (_milliseconds(group, library, runs) for library in ("reference", "impl"))
    values = ", ".join(f"{each.value:.2f}" for each in ratios)
    low, high = min(each.low for each in ratios), max(each.high for each in ratios)
    cells = (
        group,
        *times,
        values,
        f"{low:.2f} to {high:.2f}",
        "-" if floor is None else f"{floor}",
    )
    return "| " + " | ".join(cells) + " |"


def _milliseconds(group: str, library: str, runs: Sequence[dict[str, Any]]) -> str:
    """Return the median of each run; ``-`` for a row of bytes."""
    medians = [
        each["stats"]["median"] * 1000
        for run in runs
        for each in run["benchmarks"]
        if each["group"] == group and each["extra_info"]["library"] == library
    ]
    return ", ".join(f"{median:.3g}" for median in medians) or "-"
