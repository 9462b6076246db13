"""Stand-ins for functions of CUDA builds, so that torch.nn.parallel runs on other accelerators.

The Python code of torch.nn.parallel runs on any accelerator, except for one device check and for
seven functions of ``torch._C`` (the primitives) that only a CUDA build of PyTorch has. ``enable``
adapts the check and sets a stand-in for each primitive. The stand-ins are written from a
description of the primitives' behaviour and share no code with any target.

``tox -e cuda-build`` compares them with the primitives of PyPI's CUDA build.

The stand-ins always copy with ``copy_``. They do not imitate NCCL, which records no graph, does
not increase version counters and supports fewer dtypes. Their error texts name the current
accelerator: ``SIM tensors`` instead of ``CUDA tensors``.

The program ``stub_libraries.py`` replaces the libraries of CUDA, in a build of PyTorch that needs
them to be imported.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from ._broadcast import broadcast, broadcast_out
from ._coalesced import broadcast_coalesced
from ._devices import accelerator_type
from ._gather import gather, gather_out
from ._ordinals import accept_this_accelerator
from ._scatter import scatter, scatter_out

__all__ = ["IGNORED_WARNINGS", "STAND_INS", "enable"]

#: For each function of ``torch._C``: its stand-in.
STAND_INS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "_broadcast": broadcast,
        "_broadcast_out": broadcast_out,
        "_broadcast_coalesced": broadcast_coalesced,
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": gather_out,
    }
)

#: Match the beginnings of warnings that do not concern the tested call.
IGNORED_WARNINGS: tuple[str, ...] = (
    # The reference's `reduce_add` queries NCCL in every call. Remove when
    # torch.cuda.nccl.is_available does not warn in a build without NCCL.
    "PyTorch is not compiled with NCCL support",
    # PyTorch 2.11 warns once about leaves with gradients from another device.
    "The AccumulateGrad node's stream does not match",
    # PyTorch 2.11 warns once about sparse tensors that are not checked.
    "Sparse invariant checks are implicitly disabled",
    # A thread's first product on CUDA warns once, if the thread has run no other operator.
    "Attempting to run cuBLAS, but there was no current CUDA context",
    # On CUDA torch.compiler.reset imports a module of PyTorch that uses TorchScript.
    "`torch.jit.script_method` is deprecated",
    # With Python 3.13.0, torch.compile recommends 3.13.1.
    "Guards may run slower on Python 3.13.0",
)


def enable() -> None:
    """Make torch.nn.parallel run on the current accelerator.

    Set the primitives of ``torch._C``, and make parallel_apply accept the accelerator's devices.
    In a CUDA build, do nothing if CUDA is the current accelerator. If another accelerator is
    current, replace the primitives, because they accept only CUDA devices. A second call does
    nothing.
    """
    if _has_usable_primitives():
        return
    accept_this_accelerator()
    for name, stand_in in STAND_INS.items():
        setattr(torch._C, name, stand_in)


def _has_usable_primitives() -> bool:
    primitives = {name: getattr(torch._C, name, None) for name in STAND_INS}
    if None in primitives.values():
        return False
    if primitives == STAND_INS or torch.version.cuda is None:
        return True
    return accelerator_type() == "cuda"
