"""Builds the extension of csrc/front_end.cpp once, and finds it again."""

from pathlib import Path
from types import ModuleType

import torch

from spec_tests.simulator import build

FOLDER = Path(__file__).parent / "csrc"
#: -O0 halves the time to compile, and the front end only hands tensors on. Without -fopenmp the
#: replicas of a program that includes PyTorch's header run one after the other.
FLAGS = ("-O0", "-std=c++20", "-fopenmp")
#: What a build of PyTorch without CUDA lacks: a header, and the nodes Scatter and Gather.
SUPPLIED = (f"-I{FOLDER / 'without_cuda'}", "-DSUPPLY_NODES")


def load() -> ModuleType:
    """Import the extension, after building it if no process has done so before.

    Raises:
        RuntimeError: it cannot be compiled, for example for want of a compiler.
        ImportError: it does not fit the PyTorch installed.
    """
    flags = (*FLAGS, *(_of_cuda() if torch.version.cuda else SUPPLIED))
    return build.load(build.Extension("cpp_front_end", "the C++ front end", FOLDER, flags))


def _of_cuda() -> tuple[str, ...]:
    from torch.utils.cpp_extension import CUDA_HOME

    return (f"-I{CUDA_HOME}/include",) if CUDA_HOME else ()
