"""What the models have shown, as it is published: ``results.json``."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from .comparing import deviation, differences, unequal
from .model import Model
from .steps import SIDES, Run, run

__all__ = ["Result", "Runs", "result_of", "results", "run_all", "write"]

_FILE = Path(__file__).with_name("results.json")

#: A run of each side, or how it ended.
Runs = Mapping[str, "Run | str"]


@dataclass(frozen=True)
class Result:
    """What a model has shown.

    Args:
        package: Where it is from, with the version.
        chosen_for: As in the catalogue.
        losses: Of each side that has ended: one a step.
        reference: "same" as impl, bit for bit, where the copies of both are aligned; else what is
            wrong with it.
        rounded: Whether it differs from impl in a bit where they are not.
        impl: "right" if it is, beside one device; else what is wrong with it.
        deviation: The largest of impl's losses from those of one device, relative.
        wrong: What is wrong, as in the catalogue.
    """

    package: str
    chosen_for: str
    losses: dict[str, list[float]]
    reference: str
    rounded: bool
    impl: str
    deviation: float | None
    wrong: str


def run_all(model: Model) -> dict[str, Run | str]:
    """Train a model on each side."""
    found: dict[str, Run | str] = {}
    for side in SIDES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # Packages deprecate, and the reference asks for NCCL.
                found[side] = run(model, side)
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            found[side] = f"{type(error).__name__}: {text[-1]}"
    return found


def result_of(model: Model, runs: Runs) -> Result:
    """Sum up the runs of a model."""
    plain, reference, ours = (runs[side] for side in ("plain", "reference", "impl"))
    of_reference = _said_of_reference(model, runs)
    ended = {side: each.losses for side, each in runs.items() if isinstance(each, Run)}
    return Result(
        package=f"{model.package} {version(model.package).partition('+')[0]}",
        chosen_for=model.chosen_for,
        losses=ended,
        reference=of_reference,
        rounded=of_reference == "same" and _unequal(ours, reference) != [],
        impl=_said(model, plain, ours) or "right",
        deviation=_deviation(ended),
        wrong=_wrong(model),
    )


def results() -> dict[str, Result]:
    """The published results, by model."""
    return {name: Result(**found) for name, found in json.loads(_FILE.read_text()).items()}


def write(models: Mapping[str, Model]) -> None:
    """Train all models and publish what they show."""
    found = {name: asdict(result_of(model, run_all(model))) for name, model in models.items()}
    _FILE.write_text(json.dumps(found, indent=1) + "\n")


def _wrong(model: Model) -> str:
    if model.ours:
        return f"both: {model.ours}"
    return model.reference and f"reference: {model.reference}"


def _deviation(losses: Mapping[str, list[float]]) -> float | None:
    if not {"plain", "impl"} <= set(losses):
        return None
    return max(map(deviation, losses["impl"], losses["plain"]))


def _said_of_reference(model: Model, runs: Runs) -> str:
    wrong = _said(model, runs["plain"], runs["reference"])
    found = _unequal(runs["aligned impl"], runs["aligned reference"])
    return wrong or "; ".join(found[:3]) or "same"


def _unequal(run: Run | str, other: Run | str) -> list[str]:
    """Say where two runs differ in any bit, or how one has failed."""
    if isinstance(run, str):
        return [run]
    return [other] if isinstance(other, str) else unequal(run, other)


def _said(model: Model, plain: Run | str, other: Run | str) -> str:
    """Say what is wrong with a run, beside that of one device."""
    if isinstance(other, str):
        return other
    if isinstance(plain, str):
        return f"one device: {plain}"
    return "; ".join(differences(other, plain, model.apart)[:3])
