"""Run a training program in a new process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from .record import Record

__all__ = ["HERE", "LIBRARIES", "PROGRAMS", "run"]

HERE = Path(__file__).parent
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
#: Seconds after which a run counts as hung. A run takes about ten seconds.
_TIMEOUT = 250


def run(program: str, library: str) -> Record:
    """Run a program with a library in a new process; return the results.

    Raises:
        RuntimeError: The program failed.
        TimeoutExpired: The program hung.
    """
    completed = subprocess.run(
        [sys.executable, "-m", "impl_tests.consumers", program, library],
        cwd=HERE.parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if completed.returncode != 0:
        raise RuntimeError(f"{program} with {library}:\n{completed.stderr[-3000:]}")
    return cast(Record, json.loads(completed.stdout.splitlines()[-1]))
