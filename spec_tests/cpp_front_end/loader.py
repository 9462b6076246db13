"""Builds the extension of csrc/front_end.cpp once, and finds it again."""

from pathlib import Path
from types import ModuleType

import torch

from spec_tests.harness.environment.topology import Topology, not_run
from spec_tests.simulator import build

FOLDER = Path(__file__).parent / "csrc"
#: -O0 halves the time to compile, and the front end only hands tensors on. Without -fopenmp the
#: replicas of a program that includes PyTorch's header run one after the other.
FLAGS = ("-O0", "-std=c++20", "-fopenmp")
#: What a build of PyTorch without CUDA lacks: a header, and the nodes Scatter and Gather.
SUPPLIED = (f"-I{FOLDER / 'without_cuda'}", "-DSUPPLY_NODES")


def load_for(topology: Topology) -> ModuleType:
    """Import the extension, or end the test as not-run where it cannot serve ``topology``.

    The front end of a CUDA build moves tensors between CUDA devices only. On a real accelerator
    the suite needs no compiler.

    Raises:
        RuntimeError: it cannot be compiled on a machine where the simulator can.
        ImportError: it does not fit the PyTorch installed.
    """
    if torch.version.cuda and topology.accelerator != "cuda":
        not_run("the C++ front end of a CUDA build needs CUDA devices")
    try:
        return _load()
    except (RuntimeError, ImportError) as error:
        if topology.accelerator != "sim":
            not_run(str(error).partition("\n")[0])
        raise


def _load() -> ModuleType:
    flags = (*FLAGS, *(_of_cuda() if torch.version.cuda else SUPPLIED))
    return build.load(build.Extension("cpp_front_end", "the C++ front end", FOLDER, flags))


def _of_cuda() -> tuple[str, ...]:
    # The headers that pip puts beside PyTorch are not complete.
    from torch.utils.cpp_extension import CUDA_HOME

    return (f"-I{CUDA_HOME}/include",) if CUDA_HOME else ()
