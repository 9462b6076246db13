"""Compilation and import of the extension csrc/front_end.cpp."""

from pathlib import Path
from types import ModuleType

import torch

from spec_tests.harness.environment.topology import Topology, not_run
from spec_tests.simulator import build

FOLDER = Path(__file__).parent / "csrc"
#: -O0 halves the compile time. Without -fopenmp the C++ front end runs its replicas one after
#: another.
FLAGS = ("-O0", "-std=c++20", "-fopenmp")
#: The flag that defines what a PyTorch build without CUDA lacks.
WITHOUT_CUDA_FLAGS = ("-DDEFINE_SCATTER_AND_GATHER",)


def load_extension(topology: Topology) -> ModuleType:
    """Import the extension.

    The test ends as not-run if PyTorch is a CUDA build and the devices of ``topology`` are not
    CUDA devices. On a real accelerator it also ends as not-run in place of the errors below.

    Raises:
        RuntimeError: The extension cannot be compiled.
        ImportError: The extension does not match the installed PyTorch.
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
    more = _cuda_flags() if torch.version.cuda else WITHOUT_CUDA_FLAGS
    headers = () if torch.version.cuda else ("without_cuda",)
    extension = build.Extension(
        "cpp_front_end", "the C++ front end", FOLDER, (*FLAGS, *more), headers
    )
    return build.load(extension)


def _cuda_flags() -> tuple[str, ...]:
    # The CUDA headers that pip installs with PyTorch are incomplete.
    from torch.utils.cpp_extension import CUDA_HOME

    return (f"-I{CUDA_HOME}/include",) if CUDA_HOME else ()
