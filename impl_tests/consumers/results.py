"""Run the training programs, and summarize their results as ``results.json`` has them."""

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from .record import Record

__all__ = ["LIBRARIES", "PROGRAMS", "RESULTS", "run", "summarize"]

_HERE = Path(__file__).parent
#: The published results.
RESULTS = _HERE / "results.json"
#: Program -> name of its package on PyPI.
PROGRAMS = {
    "captum": "captum",
    "deepctr": "deepctr-torch",
    "fabric": "lightning-fabric",
    "fastai": "fastai",
    "gpytorch": "gpytorch",
    "ignite": "pytorch-ignite",
    "lpips": "lpips",
    "poutyne": "poutyne",
    "sync_batchnorm": "sync-batchnorm",
    "torch_geometric": "torch-geometric",
    "torchmeta": "torchmeta",
    "transformers": "transformers",
}
#: Library -> Python module that defines its DataParallel.
LIBRARIES = {"reference": "torch.nn.parallel.data_parallel", "impl": "impl.data_parallel"}


def run(program: str, library: str) -> Record:
    """Run a program with a library in a new process; return the results.

    Raises:
        RuntimeError: The program failed.
        TimeoutExpired: The program ran for more than 250 seconds; it takes about ten.
    """
    completed = subprocess.run(
        [sys.executable, "-m", "impl_tests.consumers", program, library],
        cwd=_HERE.parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    if completed.returncode != 0:
        raise RuntimeError(f"{program} with {library}:\n{completed.stderr[-3000:]}")
    return cast(Record, json.loads(completed.stdout.splitlines()[-1]))


def summarize(program: str, reference: Record, ours: Record) -> dict[str, Any]:
    """Return the published results of a program, from its runs with each library.

    These are the package with its version, the first docstring line of the program without the
    package's name, the first and the last loss of each run, and the largest difference between
    two corresponding losses or weights.
    """
    tree = ast.parse((_HERE / "programs" / f"{program}.py").read_text())
    first = (ast.get_docstring(tree) or "").splitlines()[0]
    pairs = zip(_numbers(reference), _numbers(ours), strict=True)
    return {
        "package": f"{PROGRAMS[program]} {version(PROGRAMS[program])}",
        "description": first.partition(": ")[2].rstrip(".").replace("``", "`"),
        "reference": [reference["losses"][0], reference["losses"][-1]],
        "impl": [ours["losses"][0], ours["losses"][-1]],
        # Equal numbers are left out because inf - inf is nan.
        "largest_difference": max((abs(a - b) for a, b in pairs if a != b), default=0.0),
    }


def _numbers(record: Record) -> list[float]:
    return [*record["losses"], *(x for weight in record["weights"].values() for x in weight)]
