"""The dtypes of the suite, and a probe that tries one on the devices."""

import torch
from torch import Tensor

from spec_tests.machine.topology import Topology

#: The dtypes that strategies draw from, and others that tests use.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
)
#: Dtypes that tests only copy. PyTorch itself does not compute with them.
_COPIED = {torch.uint16, torch.uint32, torch.uint64}


def try_dtype(name: str, topology: Topology) -> None:
    """Make, copy, add, multiply and differentiate tensors of the dtype with this name.

    Raises:
        AssertionError: a value differs from the CPU's.
    """
    ones = torch.ones(3, dtype=getattr(torch, name))
    found, expected = _results(ones.to(topology.device(0))), _results(ones)
    if not all(map(torch.equal, (result.cpu() for result in found), expected)):
        raise AssertionError(f"wrong values of {ones.dtype}")


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of ``dtype`` without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def _results(vector: Tensor) -> list[Tensor]:
    """Return a copy of ``vector``, and sums and products if PyTorch computes in its dtype."""
    results = [vector.clone()]
    if vector.dtype not in _COPIED:
        results.append((vector + torch.ones_like(vector)) * vector)
    if vector.is_complex():
        results.append(torch.view_as_real(vector).clone())
    if vector.is_floating_point() or vector.is_complex():
        results.append(vector[None] @ vector[:, None])
        leaf = vector.clone().requires_grad_()
        results += torch.autograd.grad(leaf * leaf, leaf, torch.ones_like(leaf))
    return results
