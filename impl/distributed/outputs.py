"""Construction of the outputs of a call from the results of all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._containers import Leaf
from .._inputs import InputLeaves
from .autograd import ExitParallelRegion, PrepareBackward
from .process_group import Communicator
from .rank_result import RankResult, Returned
from .serialization import TensorMeta, copy_to_bytes, count_bytes, read_tensors, unpack


@dataclass
class OutputGraph:
    """The arguments of :class:`ExitParallelRegion` that all outputs of one call share."""

    prepare: PrepareBackward
    scale: int
    graph_anchor: Tensor | None
    leaves: Sequence[Tensor]
    device: torch.device  # This rank's device.

    def attach(
        self, tensors: Sequence[Tensor], metas: Sequence[TensorMeta], local_indices: range
    ) -> list[Tensor]:
        """Return ``tensors``, attached to the graph if they require a gradient.

        ``metas`` say which tensors require a gradient. ``local_indices`` are the indices of this
        rank's tensors.
        """
        attached = list(tensors)
        wanted = [index for index, meta in enumerate(metas) if meta.requires_grad]
        if not wanted or not torch.is_grad_enabled():
            return attached
        outputs = ExitParallelRegion.apply(  # type: ignore[no-untyped-call] # torch leaves it untyped
            self.prepare,
            {position for position, index in enumerate(wanted) if index in local_indices},
            self.scale,
            torch.zeros((), device=self.device, requires_grad=True),
            self.graph_anchor,
            len(wanted),
            *(attached[index] for index in wanted),
            *self.leaves,
        )
        for index, output in zip(wanted, outputs, strict=True):
            attached[index] = output
        return attached


def single_rank_output(output: Any, graph: OutputGraph) -> Any:
    """Return the output of the only rank, with its tensors attached to ``graph``."""
    leaves = InputLeaves()
    root = leaves.flatten(output, None, "output")
    tensors = [leaf.tensor for leaf in leaves.copied]
    metas = [TensorMeta.from_tensor(tensor) for tensor in tensors]
    attached = graph.attach(tensors, metas, range(len(tensors)))
    pieces: dict[Leaf, list[Tensor]] = {
        leaf: [tensor] for leaf, tensor in zip(leaves.copied, attached, strict=True)
    }
    return root.unflatten(1, pieces)[0]


def gather_outputs(
    results: Sequence[RankResult],
    tensors: Sequence[Tensor],
    comm: Communicator,
    graph: OutputGraph,
    device: torch.device,
) -> list[Any]:
    """Return the outputs of all ranks with a chunk, attached to ``graph``, in rank order.

    ``tensors`` are the tensors in this rank's output. Tensors of other ranks that are not on the
    CPU are copied to ``device``.
    """
    returned = {rank: each for rank, each in enumerate(results) if isinstance(each, Returned)}
    size = max(count_bytes(each.metas, comm.comm_device) for each in returned.values())
    local_bytes = copy_to_bytes(tensors, size, comm.comm_device)
    rows = comm.all_gather(local_bytes) if size else [local_bytes] * comm.size
    gathered: list[Tensor] = []
    local = range(0)
    for rank, each in returned.items():
        if rank == comm.rank:
            local = range(len(gathered), len(gathered) + len(tensors))
            gathered += tensors
        else:
            gathered += read_tensors(rows[rank], each.metas, device)
    metas = [meta for each in returned.values() for meta in each.metas]
    attached = iter(graph.attach(gathered, metas, local))
    return [
        unpack(each.structure, [next(attached) for _ in each.metas]) for each in returned.values()
    ]


def local_output(
    results: Sequence[RankResult],
    tensors: Sequence[Tensor],
    rank: int,
    graph: OutputGraph,
    device: torch.device,
    dim: int,
) -> Any:
    """Return this rank's output, attached to ``graph``.

    ``tensors`` are the tensors in this output. A rank without a chunk gets the output of
    rank 0, with tensors of size 0 along ``dim``.
    """
    first = next(result for result in results if isinstance(result, Returned))
    local = results[rank]
    if isinstance(local, Returned):
        return unpack(local.structure, graph.attach(tensors, local.metas, range(len(tensors))))
    empty = [_empty_tensor(meta, device, dim) for meta in first.metas]
    return unpack(first.structure, graph.attach(empty, first.metas, range(0)))


def _empty_tensor(meta: TensorMeta, device: torch.device, dim: int) -> Tensor:
    shape = list(meta.shape) or [0]
    shape[dim if meta.shape else 0] = 0
    return torch.empty(shape, dtype=meta.dtype, device="cpu" if meta.on_cpu else device)
