"""Builds the extension of front_end.cpp once, and finds it again."""

from pathlib import Path
from types import ModuleType

import torch

from spec_tests.simulator import build

FOLDER = Path(__file__).parent / "csrc"


def load() -> ModuleType:
    """Import the extension, after building it if no process has done so before.

    Raises:
        RuntimeError: it cannot be compiled, for example for want of a compiler.
    """
    # -O0 halves the time to compile; the front end only hands tensors on.
    flags = (
        ("-O0",) if torch.version.cuda else ("-O0", "-DSUPPLY_NODES", f"-I{FOLDER}/without_cuda")
    )
    return build.load(build.Extension("cpp_front_end", FOLDER, flags))
