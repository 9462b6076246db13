"""The published results of the models: ``results.json``."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from impl_tests.published import read_results, write_results

from .comparison import find_bit_differences, find_differences, relative_error
from .model import Model
from .training import PLAIN_CPU, VARIANTS, Run, run

__all__ = ["Result", "Runs", "load_results", "publish", "run_all", "summarize", "try_run"]

#: The variants whose losses are published. With several backward threads, losses are not
#: reproducible, so they are not published.
_PUBLISHED = ("one device", "reference", "impl")
_FILE = Path(__file__).with_name("results.json")

#: Name of a variant -> its run, or the text of its error.
Runs = Mapping[str, "Run | str"]


@dataclass(frozen=True)
class Result:
    """The results of a model.

    Args:
        package: The package and its version.
        covers: What this model covers that the other models do not, from the catalogue.
        losses: The loss of the last step, for each published variant without an error.
        reference: "same" if `find_bit_differences` finds no difference between torch.nn.parallel
            and impl; otherwise its error or differences.
        impl: "right" if impl equals one device within rounding; otherwise its error or
            differences.
        deviation: The largest relative difference between impl's losses and those of one device.
        wrong: The known error from the catalogue, with the prefix "both: " or "reference: "; empty
            if there is none.
    """

    package: str
    covers: str
    losses: dict[str, float]
    reference: str
    impl: str
    deviation: float | None
    wrong: str


def run_all(model: Model) -> dict[str, Run | str]:
    """Train a model with each variant; return, for each variant, its run or its error."""
    return {variant: try_run(model, variant) for variant in VARIANTS if variant != PLAIN_CPU}


def try_run(model: Model, variant: str) -> Run | str:
    """Train a model with a variant; return its run or its error."""
    try:
        with warnings.catch_warnings():
            # Packages warn of deprecations, and torch.nn.parallel warns of a missing NCCL.
            warnings.simplefilter("ignore")
            return run(model, variant)
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {text[-1]}"


def summarize(model: Model, runs: Runs) -> Result:
    """Return the result of a model, from its runs."""
    published = {variant: runs[variant] for variant in _PUBLISHED}
    losses = {variant: run.losses for variant, run in published.items() if isinstance(run, Run)}
    return Result(
        package=f"{model.package} {version(model.package).partition('+')[0]}",
        covers=model.covers,
        losses={variant: values[-1] for variant, values in losses.items()},
        reference=_judge_reference(model, runs),
        impl=_find_error(model, runs["one device"], runs["impl"]) or "right",
        deviation=_largest_error(losses),
        wrong=_describe_known_error(model),
    )


def load_results() -> dict[str, Result]:
    """Return the published results, keyed by model."""
    return {name: Result(**fields) for name, fields in read_results(_FILE).items()}


def publish(models: Mapping[str, Model]) -> None:
    """Train all models and write ``results.json``."""
    results = {name: asdict(summarize(model, run_all(model))) for name, model in models.items()}
    write_results(_FILE, results)


def _describe_known_error(model: Model) -> str:
    if model.impl:
        return f"both: {model.impl}"
    return model.reference and f"reference: {model.reference}"


def _largest_error(losses: Mapping[str, list[float]]) -> float | None:
    if not {"one device", "impl"} <= set(losses):
        return None
    return max(map(relative_error, losses["impl"], losses["one device"]))


def _judge_reference(model: Model, runs: Runs) -> str:
    """Return "same" if the reference equals impl, else the reference's error or differences."""
    error = _find_error(model, runs["one device"], runs["reference"])
    found = _describe_bit_differences(runs["impl"], runs["reference"])
    return error or "; ".join(found[:3]) or "same"


def _describe_bit_differences(run: Run | str, other: Run | str) -> list[str]:
    """Return the texts of `find_bit_differences`, or only the error of a failed run."""
    if isinstance(run, str):
        return [run]
    return [other] if isinstance(other, str) else find_bit_differences(run, other)


def _find_error(model: Model, single_device: Run | str, run: Run | str) -> str:
    """Return the error of a run, or its first differences from the run on one device."""
    if isinstance(run, str):
        return run
    if isinstance(single_device, str):
        return f"one device: {single_device}"
    return "; ".join(find_differences(run, single_device, model.not_compared)[:3])
