"""Broadcasts of buffers and inputs from one rank to the others."""

from typing import Any

import torch
from torch import Tensor, nn

from .._settings import without_grad
from .exchange import exchange
from .process_group import Communicator
from .serialization import (
    Packed,
    TensorMeta,
    copy_to_bytes,
    count_bytes,
    pack,
    read_tensors,
    unpack,
    view_tensors,
)


def sync_buffers(module: nn.Module, communicator: Communicator) -> None:
    """Set the buffers of ``module`` to the values on rank 0.

    If values differ, the other ranks replace their buffers instead of overwriting them, because
    graphs of earlier calls may still need the old values. Only buffers that require a gradient
    are overwritten. Buffers that are not strided are ignored.
    """
    buffers = [buffer for buffer in module.buffers() if buffer.layout is torch.strided]
    metas = [TensorMeta.from_tensor(buffer) for buffer in buffers]
    if not buffers or communicator.size == 1:
        return
    data = copy_to_bytes(
        buffers, count_bytes(metas, communicator.comm_device), communicator.comm_device
    )
    before = data.clone()
    communicator.broadcast(data, 0)
    if communicator.rank != 0 and not torch.equal(data, before):
        values = map(_update_buffer, buffers, view_tensors(data, metas))
        updated = dict(zip(map(id, buffers), values, strict=True))
        for owner in module.modules():
            # A buffer with several names stays one tensor.
            for name, buffer in [*owner.named_buffers(recurse=False, remove_duplicate=False)]:
                setattr(owner, name, updated.get(id(buffer), buffer))


@without_grad
def _update_buffer(buffer: Tensor, value: Tensor) -> Tensor:
    if not buffer.requires_grad:
        return torch.empty_like(buffer).copy_(value)
    # Overwrite the buffer. It must stay the same leaf, because the reducer averages its gradient.
    return buffer.copy_(value)


def broadcast_inputs(inputs: Any, communicator: Communicator, source: int) -> Any:
    """Return the ``inputs`` of rank ``source`` on every rank.

    Rank ``source`` gets ``inputs`` itself. On the other ranks, tensors that are on the CPU of
    ``source`` are on the CPU, and all other tensors are on this rank's device. If ``inputs``
    cannot be pickled, every rank raises the same error.
    """
    tensors: list[Tensor] = []

    def pack_on_source() -> Packed | None:
        if communicator.rank != source:
            return None
        packed, tensors[:] = pack(inputs)
        return packed

    location = f"in rank {communicator.rank} while it sent its inputs"
    packed: Packed | None = exchange(communicator, pack_on_source, location)[source]
    if packed is None:
        raise RuntimeError(f"rank {source} sent no inputs: pass the same `source` on every rank")
    size = count_bytes(packed.metas, communicator.comm_device)
    data = copy_to_bytes(tensors, size, communicator.comm_device)
    if size:
        communicator.broadcast(data, source)
    if communicator.rank == source:
        return inputs
    copies = read_tensors(data, packed.metas, communicator.device)
    for tensor, meta in zip(copies, packed.metas, strict=True):
        tensor.requires_grad_(meta.requires_grad)
    return unpack(packed, copies)
