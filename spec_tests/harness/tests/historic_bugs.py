"""Functions of torch.nn.parallel with bugs that back ends have had.

Each function has one bug. A test puts the function into a target with ``--target-map``. The
function's key in `test_historic_bugs.BUGS` names a similar fault of the simulator.
"""

from typing import Any

import torch
from torch import Tensor, nn

comm: Any = nn.parallel.comm  # has no annotations


def scatter_by_private_function(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> Any:
    """Scatter with ``torch._C._scatter``, which builds of PyTorch without CUDA lack."""
    if out is not None:
        return comm.scatter(tensor, dim=dim, streams=streams, out=out)
    ordinals = [torch.device(device).index for device in devices]
    return tuple(torch._C._scatter(tensor, ordinals, chunk_sizes, dim, streams))


def reduce_add_into_empty(inputs: Any, destination: Any = None) -> Tensor:
    """Add the inputs to uninitialized memory."""
    expected: Tensor = comm.reduce_add(inputs, destination)
    if len(inputs) == 1:
        return expected
    total = torch.empty_like(expected)
    for tensor in inputs:
        total += tensor.to(total.device)
    return total
