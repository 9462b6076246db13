"""Processes that run a program of a package on simulated devices, with one thread each."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spec_tests import cuda_stand_ins, simulator
from spec_tests.cuda_stand_ins import stub_libraries

_ROOT = Path(__file__).resolve().parents[2]


def run_module(module: str, *arguments: str) -> Any:
    """Run a Python module in a new process; return the JSON value in its last line.

    Raises:
        RuntimeError: The process failed.
        TimeoutExpired: The process ran for more than 250 seconds; it takes about ten.
    """
    completed = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=_ROOT,
        # bitsandbytes compiles a kernel for each shape, which takes a minute.
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    if completed.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(arguments)}:\n{completed.stderr[-3000:]}")
    return json.loads(completed.stdout.splitlines()[-1])


def prepare() -> None:
    """Enable two simulated devices in this process, which the packages find, and no network."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "sim:0"  # accelerate does not find the device sim.
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    stub_libraries.load_stubs()
    simulator.enable(device_count=2)
    cuda_stand_ins.enable()


def align_copies() -> None:
    """Patch torch.nn.parallel so that it clones each copy into newly allocated, aligned memory.

    It packs the copies of a module's tensors without gaps, so that most are not aligned, and some
    processors round differently then. impl aligns its copies.
    """
    copy = torch._C._broadcast_coalesced

    def copy_aligned(
        tensors: list[Tensor], devices: list[int], buffer_size: int
    ) -> list[list[Tensor]]:
        first, *others = copy(tensors, devices, buffer_size)
        return [first, *([tensor.clone() for tensor in copies] for copies in others)]

    torch._C._broadcast_coalesced = copy_aligned
