"""Run training programs of packages that use DataParallel.

``python -m impl_tests.consumers PROGRAM LIBRARY``
    runs one program and prints its results as JSON.
``python -m impl_tests.consumers --write``
    runs all programs and writes ``results.json``.
``python -m impl_tests.consumers [OPTIONS]``
    runs the tests of this folder and of ``impl_tests/sweep``, with options of pytest.

LIBRARY is ``reference`` or ``impl``. With ``impl``, the command calls ``impl.install()`` before it
imports the package, as users would. So the package's subclasses of DataParallel derive from
impl's class.
"""

import ast
import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import impl
from impl_tests.consumers.processes import align_copies, prepare, run_module
from impl_tests.consumers.programs_page import write_results
from impl_tests.consumers.record import Record

__all__ = ["LIBRARIES", "PROGRAMS", "RESULTS", "run", "summarize"]

_HERE = Path(__file__).parent
#: The published results.
RESULTS = _HERE / "results.json"
#: For each program: the name of its package on PyPI.
PROGRAMS = {
    "captum": "captum",
    "fastai": "fastai",
    "gpytorch": "gpytorch",
    "poutyne": "poutyne",
    "sync_batchnorm": "sync-batchnorm",
    "torch_geometric": "torch-geometric",
    "torchmeta": "torchmeta",
}
#: For each library: the Python module that defines its DataParallel.
LIBRARIES = {"reference": "torch.nn.parallel.data_parallel", "impl": "impl.data_parallel"}


def run(program: str, library: str) -> Record:
    """Run a program with a library in a new process; return the results."""
    return cast(Record, run_module("impl_tests.consumers", program, library))


def summarize(program: str, runs: dict[str, Record]) -> dict[str, Any]:
    """Return the published results of a program, from its runs with each library.

    These are the package with its version, the first docstring line of the program without the
    package's name, the first and the last loss of each run, and the largest difference between
    two corresponding losses or weights.
    """
    tree = ast.parse((_HERE / "programs" / f"{program}.py").read_text())
    first = (ast.get_docstring(tree) or "").splitlines()[0]
    pairs = zip(*map(_numbers, runs.values()), strict=True)
    return {
        "package": f"{PROGRAMS[program]} {version(PROGRAMS[program])}",
        "description": first.partition(": ")[2].rstrip(".").replace("``", "`"),
        **{name: [run["losses"][0], run["losses"][-1]] for name, run in runs.items()},
        # Equal numbers are left out because inf - inf is nan.
        "largest_difference": max((abs(a - b) for a, b in pairs if a != b), default=0.0),
    }


def _numbers(record: Record) -> list[float]:
    return [*record["losses"], *(x for weight in record["weights"].values() for x in weight)]


def _train(program: str, library: str) -> None:
    """Run a program with a library in this process; print the losses and weights as JSON."""
    prepare()
    # With one backward thread per device, the gradients of a tensor are added in a random order.
    torch.autograd.set_multithreading_enabled(False)
    align_copies()
    if library == "impl":
        impl.install()
    record = importlib.import_module(f"impl_tests.consumers.programs.{program}").train()
    print(json.dumps(record))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        found = {
            each: summarize(each, {name: run(each, name) for name in LIBRARIES})
            for each in PROGRAMS
        }
        write_results(RESULTS, found)
    elif sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        _train(*sys.argv[1:])
    else:
        folders = ["impl_tests/consumers", "impl_tests/sweep"]
        options = ["--accelerator", "sim", "-n", "2", "--dist", "worksteal"]
        raise SystemExit(pytest.main([*folders, *options, *sys.argv[1:]]))
