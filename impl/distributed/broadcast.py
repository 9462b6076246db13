"""Broadcasts of buffers and inputs from one rank to the others."""

from typing import Any

import torch
from torch import Tensor, nn

from .._errors import CapturedError, capture
from .._grad_mode import without_grad
from .process_group import Communicator
from .rank_result import Idle, RankResult, Returned, make_failed, raise_first_error
from .serialization import (
    TensorMeta,
    copy_to_bytes,
    count_bytes,
    pack,
    read_tensors,
    unpack,
    view_tensors,
)


def sync_buffers(module: nn.Module, comm: Communicator) -> None:
    """Set the buffers of ``module`` to the values on rank 0.

    If values differ, the other ranks replace their buffers instead of overwriting them, because
    graphs of earlier calls may still need the old values. Only buffers that require a gradient
    are overwritten. Buffers that are not strided are ignored.
    """
    buffers = [buffer for buffer in module.buffers() if buffer.layout is torch.strided]
    metas = [TensorMeta.from_tensor(buffer) for buffer in buffers]
    if not buffers or comm.size == 1:
        return
    data = copy_to_bytes(buffers, count_bytes(metas, comm.comm_device), comm.comm_device)
    before = data.clone()
    comm.broadcast(data, 0)
    if comm.rank != 0 and not torch.equal(data, before):
        values = view_tensors(data, metas)
        _replace_buffers(module, dict(zip(map(id, buffers), values, strict=True)))


def _replace_buffers(module: nn.Module, values: dict[int, Tensor]) -> None:
    """Replace the buffers of ``module``. ``values`` maps the ``id`` of a buffer to its new value.

    A buffer with several names stays one tensor.
    """
    updated: dict[int, Tensor] = {}
    for owner in module.modules():
        for name, buffer in list(owner.named_buffers(recurse=False, remove_duplicate=False)):
            if id(buffer) in values and id(buffer) not in updated:
                updated[id(buffer)] = _update_buffer(buffer, values[id(buffer)])
            setattr(owner, name, updated.get(id(buffer), buffer))


@without_grad
def _update_buffer(buffer: Tensor, value: Tensor) -> Tensor:
    if not buffer.requires_grad:
        return torch.empty_like(buffer).copy_(value)
    # Overwrite the buffer. It must stay the same leaf, because the reducer averages its gradient.
    return buffer.copy_(value)


def broadcast_inputs(inputs: Any, comm: Communicator, source: int, device: torch.device) -> Any:
    """Return the ``inputs`` of rank ``source`` on every rank.

    Rank ``source`` gets ``inputs`` itself. On the other ranks, tensors that are on the CPU of
    ``source`` are on the CPU, and all other tensors are on ``device``. If ``inputs`` cannot be
    pickled, every rank raises the same error.
    """
    is_source = comm.rank == source
    result, tensors, error = _pack_inputs(inputs, comm) if is_source else (Idle(), [], None)
    results: list[RankResult] = comm.all_gather_object(result)
    raise_first_error(results, error)
    packed = results[source]
    if not isinstance(packed, Returned):
        raise RuntimeError(f"rank {source} sent no inputs: pass the same `source` on every rank")
    size = count_bytes(packed.metas, comm.comm_device)
    data = copy_to_bytes(tensors, size, comm.comm_device)
    if size:
        comm.broadcast(data, source)
    if is_source:
        return inputs
    copies = read_tensors(data, packed.metas, device)
    for tensor, meta in zip(copies, packed.metas, strict=True):
        tensor.requires_grad_(meta.requires_grad)
    return unpack(packed.structure, copies)


def _pack_inputs(
    inputs: Any, comm: Communicator
) -> tuple[RankResult, list[Tensor], BaseException | None]:
    outcome = capture(pack, inputs)
    if isinstance(outcome, CapturedError):
        error = outcome.pop()
        return make_failed(error, f"in rank {comm.rank} while it sent its inputs"), [], error
    structure, metas, tensors = outcome
    return Returned(structure, metas), tensors, None
