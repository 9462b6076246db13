"""The command that trains.

``python -m impl_tests.consumers PROGRAM LIBRARY``
    runs one program and prints its record as JSON.
``python -m impl_tests.consumers --write``
    runs all programs and writes ``results.json``.

LIBRARY is ``reference`` or ``impl``. The latter calls ``impl.install()`` before the package is
imported, as users would: a class that derives from DataParallel then derives from impl's.
"""

import importlib
import json
import os
import sys

import torch

import impl
from impl_tests import cuda_stubs
from impl_tests.aligned_copies import align_copies
from impl_tests.consumers import results
from spec_tests import cuda_stand_ins, simulator


def main(program: str, library: str) -> None:
    """Run a program and print its record."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "sim:0"  # accelerate does not find sim by itself
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    # With one thread per device, three gradients of one tensor would be added in a random order.
    torch.autograd.set_multithreading_enabled(False)
    cuda_stubs.load_stubs()
    simulator.enable(device_count=2)
    cuda_stand_ins.enable()
    align_copies()
    if library == "impl":
        impl.install()
    record = importlib.import_module(f"impl_tests.consumers.programs.{program}").train()
    print(json.dumps(record))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        results.write()
    else:
        main(*sys.argv[1:])
