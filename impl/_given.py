"""What one rank has and the others are given: buffers, arguments."""

from typing import Any

import torch
from torch import Tensor, nn

from ._errors import Failure, attempt
from ._parcels import as_bytes, from_bytes, label, pack, size_in_bytes, unpack
from ._processes import Ranks
from ._reports import Idle, Report, Returned, failed, raise_first

__all__ = ["receive", "take_buffers"]


def take_buffers(module: nn.Module, ranks: Ranks) -> None:
    """Give the buffers of ``module`` the values that rank 0's have.

    On other ranks than 0 those that differ are new tensors, as in replicas: what was computed
    with the old ones may still be differentiated.
    """
    buffers = [buffer for buffer in module.buffers() if buffer.layout is torch.strided]
    labels = [label(buffer) for buffer in buffers]
    if not buffers or ranks.size == 1:
        return
    data = as_bytes(buffers, size_in_bytes(labels, ranks.wire), ranks.wire)
    before = data.clone()
    ranks.broadcast_bytes(data, 0)
    if ranks.rank != 0 and not torch.equal(data, before):
        _renew(module, dict(zip(map(id, buffers), from_bytes(data, labels), strict=True)))


def _renew(module: nn.Module, values: dict[int, Tensor]) -> None:
    made: dict[int, Tensor] = {}
    for owner in module.modules():
        for name, buffer in list(owner.named_buffers(recurse=False, remove_duplicate=False)):
            if id(buffer) in values and id(buffer) not in made:
                made[id(buffer)] = _renewed(buffer, values[id(buffer)])
            setattr(owner, name, made.get(id(buffer), buffer))


def _renewed(buffer: Tensor, value: Tensor) -> Tensor:
    if not buffer.requires_grad:
        return torch.empty_like(buffer).copy_(value)
    with torch.no_grad():  # Its gradients are averaged: it must stay the same leaf.
        return buffer.copy_(value)


def receive(value: Any, ranks: Ranks, source: int, device: torch.device) -> Any:
    """Give every rank the ``value`` of rank ``source``; the others' are not looked at.

    Tensors that were on the CPU are there, all others on ``device``.

    Raises:
        Exception: It cannot be sent; the same on every rank.
    """
    is_source = ranks.rank == source
    report, tensors, own = (Idle(), [], None) if not is_source else _sent(value, ranks)
    reports: list[Report] = ranks.exchange(report)
    raise_first(reports, own)
    found = reports[source]
    if not isinstance(found, Returned):
        raise RuntimeError(f"rank {source} has sent nothing: do all ranks have the same source?")
    size = size_in_bytes(found.labels, ranks.wire)
    data = as_bytes(tensors if is_source else [], size, ranks.wire)
    if size:
        ranks.broadcast_bytes(data, source)
    return value if is_source else _built(found, data, device)


def _sent(value: Any, ranks: Ranks) -> tuple[Report, list[Tensor], BaseException | None]:
    outcome = attempt(_taken_apart, value)
    if isinstance(outcome, Failure):
        error = outcome.take()
        return failed(error, f"in rank {ranks.rank}, whose arguments were to be sent"), [], error
    return Returned(*outcome[:2]), outcome[2], None


def _taken_apart(value: Any) -> tuple[bytes, list[Any], list[Tensor]]:
    skeleton, tensors = pack(value)
    return skeleton, [label(tensor) for tensor in tensors], tensors


def _built(found: Returned, data: Tensor, device: torch.device) -> Any:
    tensors = [
        part.to("cpu" if its.on_cpu else device).requires_grad_(its.requires_grad)
        for part, its in zip(from_bytes(data, found.labels), found.labels, strict=True)
    ]
    return unpack(found.skeleton, tensors)
