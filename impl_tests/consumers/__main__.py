"""Run training programs of packages that use DataParallel.

``python -m impl_tests.consumers PROGRAM LIBRARY``
    runs one program and prints its results as JSON.
``python -m impl_tests.consumers --write``
    runs all programs and writes ``results.json``.

LIBRARY is ``reference`` or ``impl``. With ``impl``, the command calls ``impl.install()`` before it
imports the package, as users would. So the package's subclasses of DataParallel derive from
impl's class.
"""

import importlib
import json
import os
import sys

import torch

import impl
from impl_tests import cuda_stubs
from impl_tests.aligned_copies import align_copies
from impl_tests.consumers.results import LIBRARIES, PROGRAMS, RESULTS, run, summarize
from impl_tests.published import write_results
from spec_tests import cuda_stand_ins, simulator


def main(program: str, library: str) -> None:
    """Run a program with a library; print the losses and weights as JSON."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "sim:0"  # accelerate does not find the device sim.
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    # With one backward thread per device, the gradients of a tensor are added in a random order.
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
        found = {
            each: summarize(each, *(run(each, name) for name in LIBRARIES)) for each in PROGRAMS
        }
        write_results(RESULTS, found)
    else:
        main(*sys.argv[1:])
