"""The published results of the models: ``results.json``."""

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .differences import find_bit_differences, find_differences, relative_error
from .model import Model
from .training import PLAIN_CPU, VARIANTS, Run, run

__all__ = ["RESULTS", "Runs", "run_all", "summarize", "try_run"]

RESULTS = Path(__file__).with_name("results.json")
#: The variants whose losses are published. With several backward threads, losses are not
#: reproducible, so they are not published.
_PUBLISHED = ("one device", "reference", "impl")
#: Name of a variant -> its run, or the text of its error.
Runs = Mapping[str, "Run | str"]


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


def summarize(model: Model, runs: Runs) -> dict[str, Any]:
    """Return the published results of a model, from its runs.

    They are the package and its version; what the model covers; the loss of the last step, for
    each published variant without an error; ``reference``: "same" if `find_bit_differences`
    finds no difference between torch.nn.parallel and impl, otherwise the error or differences;
    ``impl``: "right" if impl equals one device within rounding, otherwise the error or
    differences; ``deviation``: the largest relative difference between impl's losses and those
    of one device; ``wrong``: the known error from the catalogue, with the prefix "reference: ".
    """
    published = {variant: runs[variant] for variant in _PUBLISHED}
    losses = {variant: run.losses for variant, run in published.items() if isinstance(run, Run)}
    both = [losses[name] for name in ("impl", "one device") if name in losses]
    return {
        "package": f"{model.package} {version(model.package).partition('+')[0]}",
        "covers": model.covers,
        "losses": {variant: values[-1] for variant, values in losses.items()},
        "reference": _judge_reference(model, runs),
        "impl": _find_error(model, runs["one device"], runs["impl"]) or "right",
        "deviation": max(map(relative_error, *both)) if len(both) == 2 else None,
        "wrong": model.reference and f"reference: {model.reference}",
    }


def _judge_reference(model: Model, runs: Runs) -> str:
    """Return "same" if the reference equals impl, else the reference's error or differences."""
    error = _find_error(model, runs["one device"], runs["reference"])
    failed = [run for run in (runs["impl"], runs["reference"]) if isinstance(run, str)]
    found = failed or find_bit_differences(runs["impl"], runs["reference"])  # type: ignore[arg-type] # no text
    return error or "; ".join(found[:3]) or "same"


def _find_error(model: Model, single_device: Run | str, run: Run | str) -> str:
    """Return the error of a run, or its first differences from the run on one device."""
    if isinstance(run, str):
        return run
    if isinstance(single_device, str):
        return f"one device: {single_device}"
    return "; ".join(find_differences(run, single_device, model.not_compared)[:3])
