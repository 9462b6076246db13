"""Compare the benchmarks on a GPU with the required ratios: met, not met or not measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.ratios import ratios

__all__ = ["Requirement", "check_requirements"]

MIB = 2**20
#: Functions whose large payloads must reach the required ratios.
_FUNCTIONS = ("broadcast_coalesced", "reduce_add_coalesced")
#: The required ratios apply to payloads of at least this many bytes.
_LARGE_BYTES = 64 * MIB
#: Required ratio: time of torch.nn.parallel divided by that of impl.
_MIN_RATIO = 1.5
#: Required bandwidth of impl, divided by that of a large copy on the device.
_MIN_COPY_SHARE = 0.7
#: The benchmark group of a training step.
_TRAINING = "DataParallel forward+backward blocks=100"


@dataclass(frozen=True)
class Requirement:
    """A required minimum and the measured value, which is None if it was not measured."""

    name: str
    minimum: float
    measured: float | None

    @property
    def verdict(self) -> str:
        """``met``, ``not met`` or ``not measured``."""
        if self.measured is None:
            return "not measured"
        return "met" if self.measured >= self.minimum else "not met"


def check_requirements(figures: Mapping[str, Any]) -> list[Requirement]:
    """Return all requirements, with the values measured in ``figures`` (``benchmark.json``)."""
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
    """Yield three requirements for each payload of 64 MiB or more.

    If ``run`` measured no such payload, the three requirements are "not measured".
    """
    shares: dict[str, dict[str, float]] = {}
    for each in run["benchmarks"]:
        info = each["extra_info"]
        if each["group"].startswith(function) and info["payload_bytes"] >= _LARGE_BYTES:
            bandwidth = info["moved_bytes"] / each["stats"]["median"]
            share = bandwidth / info["copy_bandwidth"]
            shares.setdefault(each["group"], {})[info["library"]] = share
    time_ratios = _ratios(run)
    for group in shares or {f"{function} of 64 MiB": {}}:
        share_of = shares.get(group, {})
        reference, impl = share_of.get("reference"), share_of.get("impl")
        yield Requirement(f"{group}: reference / impl, time", _MIN_RATIO, time_ratios.get(group))
        bandwidth_ratio = impl / reference if impl and reference else None
        yield Requirement(
            f"{group}: impl / reference, bytes a second", _MIN_RATIO, bandwidth_ratio
        )
        yield Requirement(f"{group}: impl's share of a copy's bandwidth", _MIN_COPY_SHARE, impl)


def _training_requirement(name: str, run: Mapping[str, Any]) -> Requirement:
    title = f"{_TRAINING}, {name}: reference / impl, time"
    return Requirement(title, _MIN_RATIO, _ratios(run).get(_TRAINING))


def _slowest_requirement(runs: Mapping[str, Mapping[str, Any]]) -> Requirement:
    """Return the requirement that no benchmark is slower with impl than with the reference."""
    time_ratios = {
        f"{group}, {name}": value
        for name, run in runs.items()
        for group, value in _ratios(run).items()
        if not group.endswith("(bytes)")
    }
    if not time_ratios:
        return Requirement("the least ratio: reference / impl", 1.0, None)
    slowest = min(time_ratios, key=time_ratios.__getitem__)
    return Requirement(f"the least ratio, {slowest}: reference / impl", 1.0, time_ratios[slowest])


def _ratios(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the ratio of each row: torch.nn.parallel divided by impl."""
    return {each.group: each.value for each in ratios(run, {})}
