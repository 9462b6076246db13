"""Combine runs of the benchmarks, and read and write their published form.

The published form is a JSON document:

* ``report``: the target and a word for the machine,
* ``machine``: processor, cores, versions, devices and threads,
* ``runs``: date and commit of each run,
* ``rows``: for each group of benchmarks, and each run and library, the quartiles in seconds and
  the number of rounds, the quartiles of the ratios (``pairs``) and the peak memory.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_tests.machine import input_files
from spec_tests.reporting import documents

#: Fields of ``machine_info`` that must be equal in all runs of a report.
_MACHINE_KEYS = ("torch", "python_version", "devices", "threads", "gpu", "cuda")
_STATS = ("q1", "median", "q3", "rounds")


@dataclass
class _ExtraInfo:
    library: str


@dataclass
class _Benchmark:
    """The times of one library in one benchmark."""

    fullname: str
    group: str
    extra_info: _ExtraInfo
    stats: dict[str, Any]


@dataclass
class _Saved:
    """A file of pytest-benchmark. Other keys are not checked."""

    datetime: str
    commit_info: dict[str, Any]
    machine_info: dict[str, Any]
    benchmarks: list[_Benchmark]


def load(path: Path) -> dict[str, Any]:
    """Return a run as ``pytest --benchmark-json`` saves it.

    Raises:
        input_files.RefusedError: The file cannot be read, or pytest-benchmark has not written it.
    """
    run = input_files.parse_json(input_files.read_text(path), str(path))
    input_files.convert(run, _Saved, f"{path} was not written by pytest --benchmark-json")
    return run  # type: ignore[no-any-return] # the shape is a table


def combine(paths: Sequence[Path]) -> dict[str, Any]:
    """Return one or more runs of one machine, without single samples.

    Args:
        paths: Files written by ``pytest --benchmark-json``.

    Returns:
        A dict with ``machine`` (processor, cores, versions and devices) and ``runs``. Each run has
        ``datetime``, ``commit``, ``dirty`` and ``benchmarks``. Each benchmark has ``group``,
        ``extra_info`` and ``stats``: quartiles in seconds, and the number of rounds.

    Raises:
        ValueError: A file was not written by pytest-benchmark, or its machine or benchmarks differ
            from those of the first file.
    """
    runs = [load(path) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        if machine_of(run) != machine_of(runs[0]):
            raise ValueError(f"{path} and {paths[0]} come from different machines")
        if missing := _benchmark_names(run) ^ _benchmark_names(runs[0]):
            raise ValueError(f"only one of {path} and {paths[0]} has {min(missing)}")
    return {"machine": machine_of(runs[0]), "runs": [_without_samples(run) for run in runs]}


def _benchmark_names(run: dict[str, Any]) -> set[str]:
    return {each["fullname"] for each in run["benchmarks"]}


def machine_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return the processor, its cores, the releases and the devices of a saved run."""
    info = run["machine_info"]
    cpu = {"cpu": info["cpu"].get("brand_raw", ""), "cores": info["cpu"].get("count")}
    return cpu | {key: info[key] for key in _MACHINE_KEYS if key in info}


def _without_samples(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "datetime": run["datetime"],
        "commit": run["commit_info"]["id"],
        "dirty": run["commit_info"].get("dirty", False),
        "benchmarks": [_select_fields(benchmark) for benchmark in run["benchmarks"]],
    }


def _select_fields(benchmark: dict[str, Any]) -> dict[str, Any]:
    stats = {key: benchmark["stats"][key] for key in _STATS}
    return {"group": benchmark["group"], "extra_info": benchmark["extra_info"], "stats": stats}


def publish(report: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the published form of runs.

    Args:
        report: The target and a word for the machine.
        data: The runs, as `combine` returns them.
    """
    runs = [
        {key: value for key, value in run.items() if key != "benchmarks"} for run in data["runs"]
    ]
    rows: dict[str, list[list[Any]]] = {}
    for place, run in enumerate(data["runs"]):
        for each in run["benchmarks"]:
            members = rows.setdefault(each["group"], [[] for _ in data["runs"]])
            members[place].append(_round_times(each))
    return documents.dump(
        {"report": dict(report), "machine": data["machine"], "runs": runs, "rows": rows}
    )


def _round_times(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Return a benchmark with numbers of six digits, without its group and the devices."""
    info = {
        key: value
        for key, value in benchmark["extra_info"].items()
        # ``machine`` has the devices, and the times show the efficiency.
        if key not in ("devices", "efficiency") and value is not None
    }
    if "pairs" in info:
        info["pairs"] = _round(info["pairs"])
    return {"extra_info": info, "stats": _round(benchmark["stats"])}


def _round(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in values.items()
    }


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``report`` of a published file, and the runs as `combine` returns them."""
    document = json.loads(path.read_text(encoding="utf-8"))
    runs = [{**run, "benchmarks": []} for run in document["runs"]]
    for group, found in document["rows"].items():
        for run, members in zip(runs, found, strict=True):
            run["benchmarks"] += [{"group": group, **each} for each in members]
    return document["report"], {"machine": document["machine"], "runs": runs}


def read_any(path: Path) -> dict[str, Any]:
    """Return the machine and the runs of a published file, or of a saved run, as `combine`."""
    if "report" in input_files.parse_json(input_files.read_text(path), str(path)):
        return read(path)[1]
    return combine([path])
