"""Training runs.

``python -m impl_tests.consumers PROGRAM SIDE``
    prints the record of one, as JSON.
``python -m impl_tests.consumers --write``
    runs all and publishes the results.

A side is ``reference`` or ``impl``. The latter installs impl before the package is imported, as
its users would: a class that derives from DataParallel then derives from impl's.
"""

import importlib
import json
import os
import sys

import torch

import impl
from impl_tests import hollow_cuda
from impl_tests.aligned_copies import align_copies
from impl_tests.consumers import results
from spec_tests import cuda_stand_ins, simulator


def main(program: str, side: str) -> None:
    """Print the record of a run."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "sim:0"  # accelerate asks for no other accelerator
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    # With a thread for each device three gradients of one tensor are added in any order.
    torch.autograd.set_multithreading_enabled(False)
    hollow_cuda.load()
    simulator.enable(device_count=2)
    cuda_stand_ins.enable()
    align_copies()
    if side == "impl":
        impl.install()
    record = importlib.import_module(f"impl_tests.consumers.programs.{program}").train()
    print(json.dumps(record))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        results.write()
    else:
        main(*sys.argv[1:])
