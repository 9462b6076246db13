"""Compare the benchmarks of a GPU with the required ratios: met, not met or not measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench import compare

__all__ = ["Requirement", "check_requirements"]

MIB = 2**20
#: The functions with requirements for large payloads.
_FUNCTIONS = ("broadcast_coalesced", "reduce_add_coalesced")
#: The least payload with requirements, in bytes.
_LARGE = 64 * MIB
#: The required ratio, reference over impl.
_RATIO = 1.5
#: The required share of the bandwidth of a large copy on the device.
_COPY_SHARE = 0.7
_TRAINING = "DataParallel forward+backward blocks=100"


@dataclass(frozen=True)
class Requirement:
    """A figure and its minimum; ``found`` is None if the figure was not measured."""

    name: str
    minimum: float
    found: float | None

    @property
    def verdict(self) -> str:
        """``met``, ``not met`` or ``not measured``."""
        if self.found is None:
            return "not measured"
        return "met" if self.found >= self.minimum else "not met"


def check_requirements(figures: Mapping[str, Any]) -> list[Requirement]:
    """Return all requirements with the figures of ``benchmark.json``."""
    runs = {name: run for name, data in figures.items() for run in data["runs"]}
    comm = runs.get("bench-comm", _EMPTY_RUN)
    return [
        *(each for function in _FUNCTIONS for each in _comm_requirements(function, comm)),
        *(
            _training_requirement(name, runs.get(name, _EMPTY_RUN))
            for name in ("bench-4", "bench-2")
        ),
        _slowest_requirement(runs),
    ]


_EMPTY_RUN: Mapping[str, Any] = {"benchmarks": []}


def _comm_requirements(function: str, run: Mapping[str, Any]) -> Iterator[Requirement]:
    """Yield three requirements for each payload of 64 MiB or more, measured or not."""
    shares: dict[str, dict[str, float]] = {}
    for each in run["benchmarks"]:
        about = each["extra_info"]
        if each["group"].startswith(function) and about["payload_bytes"] >= _LARGE:
            shares.setdefault(each["group"], {})[about["library"]] = about["copy_share"]
    times = _ratios(run)
    for group in shares or {f"{function} of 64 MiB": {}}:
        share = shares.get(group, {})
        reference, impl = share.get("reference"), share.get("impl")
        yield Requirement(f"{group}: reference / impl, time", _RATIO, times.get(group))
        bandwidth = impl / reference if impl and reference else None
        yield Requirement(f"{group}: impl / reference, bytes a second", _RATIO, bandwidth)
        yield Requirement(f"{group}: impl's share of a copy's bandwidth", _COPY_SHARE, impl)


def _training_requirement(name: str, run: Mapping[str, Any]) -> Requirement:
    title = f"{_TRAINING}, {name}: reference / impl, time"
    return Requirement(title, _RATIO, _ratios(run).get(_TRAINING))


def _slowest_requirement(runs: Mapping[str, Mapping[str, Any]]) -> Requirement:
    found = {
        f"{group}, {name}": value
        for name, run in runs.items()
        for group, value in _ratios(run).items()
        if not group.endswith("(bytes)")
    }
    if not found:
        return Requirement("the least ratio: reference / impl", 1.0, None)
    slowest = min(found, key=found.__getitem__)
    return Requirement(f"the least ratio, {slowest}: reference / impl", 1.0, found[slowest])


def _ratios(run: Mapping[str, Any]) -> dict[str, float]:
    return {each.group: each.value for each in compare.ratios(dict(run), {})}
