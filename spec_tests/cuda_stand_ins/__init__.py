"""Stand-ins for the primitives of CUDA builds, with which torch.nn.parallel runs elsewhere.

torch.nn.parallel's Python layer runs on any accelerator but for one device check, and for seven
primitives that only a CUDA build of PyTorch has. ``enable`` sees to both. The stand-ins for the
primitives are written from the statement of their behaviour and share no code with any
implementation under test. They take the copy path throughout: what the real ones do over NCCL (no
graph, no version bump, fewer dtypes) is not imitated. Where messages of the real ones say
``CUDA tensors``, these name the accelerator at hand: ``SIM tensors``.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from ._broadcast import broadcast, broadcast_out
from ._coalesced import broadcast_coalesced
from ._devices import accelerator
from ._gather import gather, gather_out
from ._ordinals import accept_this_accelerator
from ._scatter import scatter, scatter_out

__all__ = ["IGNORED_WARNINGS", "STAND_INS", "enable"]

#: The stand-ins, by the attribute of ``torch._C`` that each supplies.
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

#: Filters, as pytest and ``python -W`` spell them, for what PyTorch says of the build or once a
#: process, rather than of the call.
#: ``reduce_add`` asks for NCCL every time, and that warns where there is none: remove when
#: torch.cuda.nccl.is_available no longer warns in a build without NCCL. PyTorch 2.11 says once
#: that leaves get gradients from another device, and that sparse tensors are not checked; with
#: Python 3.13.0 torch.compile recommends 3.13.1.
IGNORED_WARNINGS: tuple[str, ...] = (
    "ignore:PyTorch is not compiled with NCCL support:UserWarning",
    "ignore:The AccumulateGrad node's stream does not match:UserWarning",
    "ignore:Sparse invariant checks are implicitly disabled:UserWarning",
    "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
)


def enable() -> None:
    """Make torch.nn.parallel run on the current accelerator.

    Supplies the primitives that ``torch._C`` lacks, and lets parallel_apply take the accelerator's
    devices. Those of a CUDA build take CUDA's devices only, and give way on any other
    accelerator. On CUDA nothing changes; a second call does nothing.
    """
    if _is_complete():
        return
    accept_this_accelerator()
    for name, stand_in in STAND_INS.items():
        setattr(torch._C, name, stand_in)


def _is_complete() -> bool:
    found = {name: getattr(torch._C, name, None) for name in STAND_INS}
    if None in found.values():
        return False
    if found == STAND_INS or torch.version.cuda is None:
        return True
    return accelerator() == "cuda"
