"""Run training programs of packages that use DataParallel.

``python -m impl_tests.consumers PROGRAM LIBRARY``
    runs one program and prints its results as JSON.
``python -m impl_tests.consumers [OPTIONS]``
    runs the tests of this folder and of ``impl_tests/sweep``, with options of pytest.

LIBRARY is ``reference`` or ``impl``. With ``impl``, the command calls ``impl.install()`` before it
imports the package, as users would. So the package's subclasses of DataParallel derive from
impl's class.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import cast

import pytest
import torch

import impl
from impl_tests.consumers.processes import align_copies, prepare, run_module
from impl_tests.consumers.record import Record

#: The modules in ``programs``.
PROGRAMS = [path.stem for path in sorted(Path(__file__).parent.glob("programs/[!_]*.py"))]
#: For each library: the Python module that defines its DataParallel.
LIBRARIES = {"reference": "torch.nn.parallel.data_parallel", "impl": "impl.data_parallel"}


def run(program: str, library: str) -> Record:
    """Run a program with a library in a new process; return the results."""
    return cast(Record, run_module("impl_tests.consumers", program, library))


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
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        _train(*sys.argv[1:])
    else:
        folders = ["impl_tests/consumers", "impl_tests/sweep"]
        options = ["--accelerator", "sim", "-n", "2", "--dist", "worksteal"]
        raise SystemExit(pytest.main([*folders, *options, *sys.argv[1:]]))
