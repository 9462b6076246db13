"""Stand-ins for primitives of CUDA builds, so that torch.nn.parallel runs on other accelerators.

The Python code of torch.nn.parallel runs on any accelerator, except for one device check and for
seven primitives that only a CUDA build of PyTorch has. ``enable`` adapts the check and installs
the stand-ins. They are written from a description of the primitives' behaviour and share no code
with any implementation under test. They always copy, and do not imitate NCCL (no graph, no version
bump, fewer dtypes). Their messages name the current accelerator: ``SIM tensors`` instead of
``CUDA tensors``.
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

#: The stand-ins by the attribute of ``torch._C`` that each replaces.
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

#: Filters, in the format of pytest and ``python -W``, for warnings that do not concern the call.
#: 1: ``reduce_add`` queries NCCL in every call. Remove when torch.cuda.nccl.is_available does not
#: warn in a build without NCCL. 2 and 3: PyTorch 2.11 warns once about leaves with gradients from
#: another device, and about unchecked sparse tensors. 4: with Python 3.13.0 torch.compile
#: recommends 3.13.1.
IGNORED_WARNINGS: tuple[str, ...] = (
    "ignore:PyTorch is not compiled with NCCL support:UserWarning",
    "ignore:The AccumulateGrad node's stream does not match:UserWarning",
    "ignore:Sparse invariant checks are implicitly disabled:UserWarning",
    "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
)


def enable() -> None:
    """Make torch.nn.parallel run on the current accelerator.

    Sets the primitives of ``torch._C`` and makes parallel_apply accept the accelerator's devices.
    The primitives of a CUDA build are replaced if another accelerator is current, because they
    accept only CUDA devices. On CUDA nothing changes. A second call does nothing.
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
