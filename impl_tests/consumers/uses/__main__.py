"""Run uses of packages with wrappers, and compare the results with those of the module alone.

``python -m impl_tests.consumers.uses PROGRAM``
    runs the uses of one file and prints their results as JSON.
``python -m impl_tests.consumers.uses --write``
    runs all uses and writes ``results.json``.
"""

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from impl_tests.consumers.processes import prepare, run_module
from impl_tests.consumers.programs_page import write_results

from . import VARIANTS, Use, Variant

#: The published results.
RESULTS = Path(__file__).parent / "results.json"
#: For each program: the name of its package on PyPI.
PROGRAMS = {
    "transformers": "transformers",
    "peft": "peft",
    "bitsandbytes": "bitsandbytes",
    "torchao": "torchao",
    "accelerate": "accelerate",
    "trl": "trl",
    "sentence_transformers": "sentence-transformers",
    "diffusers": "diffusers",
}
#: The largest difference that counts as equal, relative to the largest element of a tensor.
TOLERANCE = 1e-5
#: The number of characters of an error in the results.
_ERROR_LENGTH = 110


def run_all(program: str) -> dict[str, dict[str, str]]:
    """Run the uses in a file in a new process; return the results by use.

    The result of a use names its package and has for each wrapper "equal", "wrong" or the error.
    """
    found = run_module("impl_tests.consumers.uses", program)
    package = f"{PROGRAMS[program]} {version(PROGRAMS[program])}"
    return {use: {"package": package, **results} for use, results in found.items()}


def _compare(use: Use) -> dict[str, str]:
    """Return the result of ``use`` with each wrapper."""
    devices = {variant.device for variant in VARIANTS.values()}
    alone = {device: _compute(use, Variant(device)) for device in devices}
    return {
        name: _result(use, variant, alone[variant.device]) for name, variant in VARIANTS.items()
    }


def _result(use: Use, variant: Variant, expected: list[Tensor]) -> str:
    try:
        found = _compute(use, variant)
    except Exception as error:
        return _describe(error)
    return "equal" if _are_close(found, expected) else "wrong"


def _compute(use: Use, variant: Variant) -> list[Tensor]:
    torch.manual_seed(0)
    leaves = [torch.as_tensor(leaf) for leaf in tree_leaves(use(variant)) if leaf is not None]
    return [leaf.detach().cpu().double() for leaf in leaves]


def _are_close(found: list[Tensor], expected: list[Tensor]) -> bool:
    return len(found) == len(expected) and all(
        one.shape == other.shape
        and bool((one - other).abs().le(TOLERANCE * other.abs().max()).all())
        for one, other in zip(found, expected, strict=True)
    )


def _describe(error: Exception) -> str:
    """Return the class of ``error`` and the sentence that has the cause."""
    kind, lines = type(error).__name__, str(error).strip().splitlines()
    text = f"{kind}: {lines[0]}"
    if lines[0].startswith("Caught "):  # The text has the traceback of a replica.
        notes = getattr(error, "__notes__", [])
        text = f"{kind}: {notes[0]}" if notes else lines[-1]
    return text if len(text) <= _ERROR_LENGTH else f"{text[:_ERROR_LENGTH]} …"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        found: dict[str, Any] = {}
        for each in PROGRAMS:
            found.update(run_all(each))
        write_results(RESULTS, found)
    else:
        prepare()
        uses = importlib.import_module(f"impl_tests.consumers.uses.{sys.argv[1]}").USES
        print(json.dumps({name: _compare(use) for name, use in uses.items()}))
