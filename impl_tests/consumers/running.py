"""Runs of the programs, each in a new process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from .record import Record

__all__ = ["HERE", "LIBRARIES", "PROGRAMS", "run"]

HERE = Path(__file__).parent
#: The programs, each with its package as the package index names it.
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
#: The libraries, each with the Python module that defines its DataParallel.
LIBRARIES = {"reference": "torch.nn.parallel.data_parallel", "impl": "impl.data_parallel"}
#: Seconds after which a run counts as hung; a run takes about ten.
_TIMEOUT = 250


def run(program: str, library: str) -> Record:
    """Run a program in a new process and return its record.

    Raises:
        RuntimeError: The program failed.
        TimeoutExpired: The program hung.
    """
    done = subprocess.run(
        [sys.executable, "-m", "impl_tests.consumers", program, library],
        cwd=HERE.parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program} on {library}:\n{done.stderr[-3000:]}")
    return cast(Record, json.loads(done.stdout.splitlines()[-1]))
