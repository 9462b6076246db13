"""The published results of the models: ``results.json``."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from .comparison import find_bit_differences, find_differences, relative_error
from .model import Model
from .training import VARIANTS, Run, run

__all__ = ["Result", "Runs", "load_results", "run_all", "summarize", "write"]

#: The variants whose losses are published; those of several threads vary from run to run.
_PUBLISHED = ("one device", "reference", "impl")
_FILE = Path(__file__).with_name("results.json")

#: The run of each variant, or its error.
Runs = Mapping[str, "Run | str"]


@dataclass(frozen=True)
class Result:
    """The results of a model.

    Args:
        package: The package and its version.
        chosen_for: As in the catalogue.
        losses: The losses of each published variant that ran without error, one per step.
        reference: "same" if the reference equals impl bit for bit with aligned copies; otherwise
            its error.
        rounded: Whether the reference differs from impl in rounding without aligned copies.
        impl: "right" if impl equals one device within rounding; otherwise its error.
        deviation: The largest relative error of impl's losses against one device.
        wrong: The known error, as in the catalogue.
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
    """Train a model with each variant."""
    found: dict[str, Run | str] = {}
    for variant in VARIANTS:
        try:
            with warnings.catch_warnings():
                # Deprecations in the packages, and the reference's warning about a missing NCCL.
                warnings.simplefilter("ignore")
                found[variant] = run(model, variant)
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            found[variant] = f"{type(error).__name__}: {text[-1]}"
    return found


def summarize(model: Model, runs: Runs) -> Result:
    """Return the result of a model's runs."""
    plain, reference, ours = runs["one device"], runs["reference"], runs["impl"]
    of_reference = _judge_reference(model, runs)
    published = {variant: runs[variant] for variant in _PUBLISHED}
    losses = {variant: it.losses for variant, it in published.items() if isinstance(it, Run)}
    return Result(
        package=f"{model.package} {version(model.package).partition('+')[0]}",
        chosen_for=model.chosen_for,
        losses=losses,
        reference=of_reference,
        rounded=of_reference == "same" and _bit_differences(ours, reference) != [],
        impl=_find_error(model, plain, ours) or "right",
        deviation=_largest_error(losses),
        wrong=_known_error(model),
    )


def load_results() -> dict[str, Result]:
    """Return the published results, by model."""
    return {name: Result(**found) for name, found in json.loads(_FILE.read_text()).items()}


def write(models: Mapping[str, Model]) -> None:
    """Train all models and write ``results.json``."""
    found = {name: asdict(summarize(model, run_all(model))) for name, model in models.items()}
    _FILE.write_text(json.dumps(found, indent=1) + "\n")


def _known_error(model: Model) -> str:
    if model.impl:
        return f"both: {model.impl}"
    return model.reference and f"reference: {model.reference}"


def _largest_error(losses: Mapping[str, list[float]]) -> float | None:
    if not {"one device", "impl"} <= set(losses):
        return None
    return max(map(relative_error, losses["impl"], losses["one device"]))


def _judge_reference(model: Model, runs: Runs) -> str:
    error = _find_error(model, runs["one device"], runs["reference"])
    found = _bit_differences(runs["aligned impl"], runs["aligned reference"])
    return error or "; ".join(found[:3]) or "same"


def _bit_differences(run: Run | str, other: Run | str) -> list[str]:
    """Return the values in which two runs differ in any bit, or the error of a failed run."""
    if isinstance(run, str):
        return [run]
    return [other] if isinstance(other, str) else find_bit_differences(run, other)


def _find_error(model: Model, plain: Run | str, run: Run | str) -> str:
    """Return the error of a run, or its differences from the run on one device."""
    if isinstance(run, str):
        return run
    if isinstance(plain, str):
        return f"one device: {plain}"
    return "; ".join(find_differences(run, plain, model.not_compared)[:3])
