"""Expected results for arguments that are marked as Whole or SplitAlong."""

from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import tensors
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.markers import MarkedArguments, map_tensors


def expected_arguments(
    case: MarkedArguments, inputs: Any, topology: Topology, replica: int
) -> Any:
    """Return the arguments that replica number ``replica`` gets if ``inputs`` are scattered."""
    leaves = iter(tensors(inputs, ""))
    device = topology.device(case.slots[replica])
    rows = even_chunks(case.extent, len(case.slots))

    def take_chunk(dim: int | None) -> Tensor:
        _, tensor = next(leaves)
        is_split = dim is not None and tensor.dim() > 0
        start = sum(rows[:replica])
        chunk = tensor.narrow(dim or 0, start, rows[replica]) if is_split else tensor
        return chunk.to(device)

    return map_tensors(case.arguments, 0, take_chunk, None)


def compute_gradients(value: object, inputs: object) -> Any:
    """Return the gradients of all tensors in ``value`` with respect to ``inputs``."""
    outputs = [tensor for _, tensor in tensors(value, "") if tensor.requires_grad]
    leaves = [tensor for _, tensor in tensors(inputs, "") if tensor.requires_grad]
    if not outputs:
        return None
    grad_outputs = [cotangent(output) for output in outputs]
    return snapshot(list(torch.autograd.grad(outputs, leaves, grad_outputs)), {}, strides=False)
