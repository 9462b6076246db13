"""What a GPU must show, row by row: met, not met or not measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench import compare

__all__ = ["Row", "rows"]

MIB = 2**20
#: How often impl must be as fast as the reference, by what moves tensors.
_MOVERS = ("broadcast_coalesced", "reduce_add_coalesced")
_LARGE = 64 * MIB
_TIMES = 1.5
#: The share that it must reach of what a large copy on the device reaches.
_OF_A_COPY = 0.7
_TRAINING = "DataParallel forward+backward blocks=100"


@dataclass(frozen=True)
class Row:
    """One figure and the least that it must be; ``found`` is None where it was not measured."""

    name: str
    wanted: float
    found: float | None

    @property
    def verdict(self) -> str:
        """``met``, ``not met`` or ``not measured``."""
        if self.found is None:
            return "not measured"
        return "met" if self.found >= self.wanted else "not met"


def rows(figures: Mapping[str, Any]) -> list[Row]:
    """The rows of what ``benchmark.json`` holds."""
    runs = {name: run for name, data in figures.items() for run in data["runs"]}
    return [
        *(row for mover in _MOVERS for row in _of_mover(mover, runs.get("bench-comm", _NOTHING))),
        *(_of_training(name, runs.get(name, _NOTHING)) for name in ("bench-4", "bench-2")),
        _slowest(runs),
    ]


_NOTHING: Mapping[str, Any] = {"benchmarks": []}


def _of_mover(mover: str, run: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of the payloads of 64 MiB and more, or one that says that there is none."""
    shares: dict[str, dict[str, float]] = {}
    for each in run["benchmarks"]:
        about = each["extra_info"]
        if each["group"].startswith(mover) and about["payload_bytes"] >= _LARGE:
            shares.setdefault(each["group"], {})[about["library"]] = about["copy_share"]
    times = _ratios(run)
    for group in shares or {f"{mover} of 64 MiB": {}}:
        share = shares.get(group, {})
        reference, impl = share.get("reference"), share.get("impl")
        yield Row(f"{group}: reference / impl, time", _TIMES, times.get(group))
        bytes_a_second = impl / reference if impl and reference else None
        yield Row(f"{group}: impl / reference, bytes a second", _TIMES, bytes_a_second)
        yield Row(f"{group}: impl's share of a copy's bandwidth", _OF_A_COPY, impl)


def _of_training(name: str, run: Mapping[str, Any]) -> Row:
    return Row(f"{_TRAINING}, {name}: reference / impl, time", _TIMES, _ratios(run).get(_TRAINING))


def _slowest(runs: Mapping[str, Mapping[str, Any]]) -> Row:
    found = {
        f"{group}, {name}": value
        for name, run in runs.items()
        for group, value in _ratios(run).items()
        if not group.endswith("(bytes)")
    }
    if not found:
        return Row("the slowest of all: reference / impl", 1.0, None)
    slowest = min(found, key=found.__getitem__)
    return Row(f"the slowest of all, {slowest}: reference / impl", 1.0, found[slowest])


def _ratios(run: Mapping[str, Any]) -> dict[str, float]:
    return {each.group: each.value for each in compare.ratios(dict(run), {})}
