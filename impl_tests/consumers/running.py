"""Both runs of a program, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from .record import Record

__all__ = ["HERE", "PROGRAMS", "SIDES", "run"]

HERE = Path(__file__).parent
#: The programs, and the package that each is about as the package index names it.
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
#: The sides, and the module that has the DataParallel of each.
SIDES = {"reference": "torch.nn.parallel.data_parallel", "impl": "impl.data_parallel"}
#: Seconds; a run takes about ten, and replicas that wait for each other could wait for ever.
_LIMIT = 250


def run(program: str, side: str) -> Record:
    """Run a program.

    Raises:
        RuntimeError: It ended with an error.
        TimeoutExpired: It did not end.
    """
    done = subprocess.run(
        [sys.executable, "-m", "impl_tests.consumers", program, side],
        cwd=HERE.parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program} on {side}:\n{done.stderr[-3000:]}")
    return cast(Record, json.loads(done.stdout.splitlines()[-1]))
