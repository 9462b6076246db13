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
        reference: "same" as impl, bit for bit; else what is wrong with it.
        impl: "right" if it is, beside one device; else what is wrong with it.
        deviation: The largest of impl's losses from those of one device, relative.
        wrong: What is wrong, as in the catalogue.
    """

    package: str
    chosen_for: str
    losses: dict[str, list[float]]
    reference: str
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
    ended = {side: each.losses for side, each in runs.items() if isinstance(each, Run)}
    return Result(
        package=f"{model.package} {version(model.package).partition('+')[0]}",
        chosen_for=model.chosen_for,
        losses=ended,
        reference=_said_of_reference(model, plain, reference, ours),
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


def _said_of_reference(
    model: Model, plain: Run | str, reference: Run | str, ours: Run | str
) -> str:
    wrong = _said(model, plain, reference)
    if wrong or isinstance(reference, str) or isinstance(ours, str):
        return wrong
    return "; ".join(unequal(ours, reference)[:3]) or "same"


def _said(model: Model, plain: Run | str, other: Run | str) -> str:
    """Say what is wrong with a run, beside that of one device."""
    if isinstance(other, str):
        return other
    if isinstance(plain, str):
        return f"one device: {plain}"
    return "; ".join(differences(other, plain, model.apart)[:3])
