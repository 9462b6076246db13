"""One call: each rank runs the module on its chunk, and gets the outputs of all ranks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._devices import call_on_device
from .autograd import ExitParallelRegion, PrepareBackward
from .exchange import exchange
from .inputs import ShardedInputs
from .process_group import Communicator
from .serialization import (
    Packed,
    TensorMeta,
    copy_to_bytes,
    count_bytes,
    pack,
    read_tensors,
    unpack,
)


class RankCall:
    """This rank's part of one call.

    Args:
        communicator: The ranks.
        prepare: A function that backward calls when it starts.
        leaves: The tensors of the module that require gradients.
    """

    def __init__(
        self, communicator: Communicator, prepare: PrepareBackward, leaves: Sequence[Tensor]
    ) -> None:
        self._communicator, self._prepare, self._leaves = communicator, prepare, leaves
        self._graph_anchor: Tensor | None = None  # As in `ShardedInputs`.
        #: The tensors in this rank's output.
        self._tensors: list[Tensor] = []
        #: For each rank its output without tensors; None for a rank without a chunk.
        self._results: list[Packed | None] = []

    def run(self, module: nn.Module, shard: Callable[[], ShardedInputs]) -> None:
        """Run ``module`` on this rank's chunk, and exchange the results of the ranks.

        Raise the exception of the lowest rank that raised one.
        """
        location = f"in rank {self._communicator.rank} on device {self._communicator.device}"
        self._results = exchange(self._communicator, lambda: self._run(module, shard()), location)

    def _run(self, module: nn.Module, inputs: ShardedInputs) -> Packed | None:
        self._graph_anchor = inputs.graph_anchor
        if self._communicator.rank >= inputs.num_active_ranks:
            return None
        args, kwargs = inputs.local_inputs()
        output = call_on_device(self._communicator.device, module, *args, **kwargs)
        packed, self._tensors = pack(output)
        return packed

    def local_output(self, dim: int) -> Any:
        """Return this rank's output.

        A rank without a chunk gets the output of the first rank, with tensors of size 0 along
        ``dim``.
        """
        local = self._results[self._communicator.rank]
        if local is not None:
            tensors = self._attach(self._tensors, local.metas, range(len(self._tensors)))
            return unpack(local, tensors)
        first = next(result for result in self._results if result is not None)
        empty = [_empty_tensor(meta, self._communicator.device, dim) for meta in first.metas]
        return unpack(first, self._attach(empty, first.metas, range(0)))

    def gather_outputs(self) -> list[Any]:
        """Return the outputs of all ranks with a chunk, in rank order.

        Tensors of other ranks that are not on the CPU are copied to this rank's device.
        """
        communicator = self._communicator
        results = {rank: each for rank, each in enumerate(self._results) if each is not None}
        size = max(count_bytes(each.metas, communicator.comm_device) for each in results.values())
        local_bytes = copy_to_bytes(self._tensors, size, communicator.comm_device)
        rows = communicator.all_gather(local_bytes) if size else [local_bytes] * communicator.size
        tensors: list[Tensor] = []
        local = range(0)
        for rank, each in results.items():
            start = len(tensors)
            if rank == communicator.rank:
                tensors += self._tensors
                local = range(start, len(tensors))
            else:
                tensors += read_tensors(rows[rank], each.metas, communicator.device)
        metas = [meta for each in results.values() for meta in each.metas]
        attached = iter(self._attach(tensors, metas, local))
        return [unpack(each, [next(attached) for _ in each.metas]) for each in results.values()]

    def _attach(
        self, tensors: Iterable[Tensor], metas: Sequence[TensorMeta], local: range
    ) -> list[Tensor]:
        """Return ``tensors`` with history, of which this rank's are at the indices ``local``."""
        attached = list(tensors)
        wanted = [index for index, meta in enumerate(metas) if meta.requires_grad]
        if not wanted or not torch.is_grad_enabled():
            return attached
        outputs = ExitParallelRegion.apply(  # type: ignore[no-untyped-call] # torch leaves it untyped
            self._prepare,
            {position for position, index in enumerate(wanted) if index in local},
            self._communicator.size,
            torch.zeros((), device=self._communicator.device, requires_grad=True),
            self._graph_anchor,
            len(wanted),
            *(attached[index] for index in wanted),
            *self._leaves,
        )
        for index, output in zip(wanted, outputs, strict=True):
            attached[index] = output
        return attached


def _empty_tensor(meta: TensorMeta, device: torch.device, dim: int) -> Tensor:
    shape = list(meta.shape) or [0]
    shape[dim if meta.shape else 0] = 0
    return torch.empty(shape, dtype=meta.dtype, device="cpu" if meta.on_cpu else device)
