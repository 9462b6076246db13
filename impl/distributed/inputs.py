"""Selection of one rank's chunk of nested inputs, by the rules of ``scatter``."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._containers import Leaf, Node, format_path, is_tensor_dict
from .._inputs import CopiedLeaf, InputLeaves, SplitLeaf
from .._scatter_leaves import scatter_leaves, split_lengths
from .autograd import EnterParallelRegion
from .process_group import Communicator
from .serialization import describe

#: Name, shape and dtype, and hash of each tensor. Different inputs have different fingerprints,
#: except for hash collisions.
Fingerprint = list[tuple[str, str, int]]

#: The hash multiplies each word by an odd multiple of this number, so that the hash depends on the
#: order of the elements. The number is 2**64 divided by the golden ratio, as a signed integer.
_HASH_FACTOR = 0x9E3779B97F4A7C15 - 2**64


class ShardedInputs:
    """The inputs of a call, split into one chunk for each rank below ``num_active_ranks``.

    ``graph_anchor`` is the dummy scalar of :class:`EnterParallelRegion`; None if no input requires
    a gradient.
    """

    def __init__(
        self,
        communicator: Communicator,
        args: Any,
        kwargs: Any,
        dim: int,
        chunk_sizes: Sequence[float] | None,
    ) -> None:
        self._flattened = InputLeaves()
        flatten = self._flattened.flatten
        self._nodes: list[Node] = [flatten(args, dim, "args"), flatten(kwargs, dim, "kwargs")]
        self._flattened.sort_attributes()
        for split in self._flattened.splits:
            if is_tensor_dict(split.value):
                raise TypeError(
                    f"{format_path(split.path)}: a TensorDict with a batch_size cannot be split "
                    "over ranks: pass a dict"
                )
        self._rank, self._device = communicator.rank, communicator.device
        self._lengths: list[list[int]] = []
        self.num_active_ranks = communicator.size if args or kwargs else 1
        if self._flattened.splits:
            self._lengths = split_lengths(self._flattened.splits, communicator.size, chunk_sizes)
            self.num_active_ranks = len(self._lengths[0])
        self.graph_anchor = self._enter_parallel_region(communicator)

    def local_inputs(self) -> tuple[Any, Any]:
        """Return this rank's positional and keyword arguments, on its device."""
        pieces: dict[Leaf, list[Any]] = {
            leaf: [leaf.tensor.to(self._device)] for leaf in self._flattened.copied
        }
        for split, lengths in zip(self._flattened.splits, self._lengths, strict=True):
            # Pad with lengths of 0, so that a rank without a chunk gets empty tensors. Only
            # `DataParallel.part` uses these.
            padded = [*lengths, *[0] * (self._rank + 1 - len(lengths))]
            chunks = scatter_leaves([split], [padded], [split.device] * len(padded), even=False)
            pieces[split] = [chunks[split][self._rank].to(self._device)]
        args, kwargs = (node.unflatten(1, pieces)[0] for node in self._nodes)
        return args, kwargs

    def fingerprint(self) -> Fingerprint:
        """Return the names, descriptions and hashes of all tensors."""
        return [
            (_name_of(leaf), describe(leaf.tensor), _hash_tensor(leaf.tensor))
            for leaf in self._leaves()
        ]

    def _enter_parallel_region(self, communicator: Communicator) -> Tensor | None:
        leaves = [leaf for leaf in self._leaves() if leaf.tensor.requires_grad]
        if not leaves or not torch.is_grad_enabled():
            return None
        graph_anchor, *tensors = EnterParallelRegion.apply(  # type: ignore[no-untyped-call] # torch leaves it untyped
            communicator, *(leaf.tensor.to(self._device) for leaf in leaves)
        )
        for leaf, tensor in zip(leaves, tensors, strict=True):
            _replace_tensor(leaf, tensor)
        return graph_anchor  # type: ignore[no-any-return] # untyped

    def _leaves(self) -> list[SplitLeaf | CopiedLeaf]:
        return [*self._flattened.splits, *self._flattened.copied]


def check_same_inputs(fingerprints: Sequence[Fingerprint]) -> None:
    """Raise ValueError if a fingerprint differs from the most frequent one.

    If several fingerprints are the most frequent, the one of the lowest rank counts.
    """
    common = max(fingerprints, key=fingerprints.count)
    for rank, fingerprint in enumerate(fingerprints):
        if fingerprint != common:
            difference = _describe_difference(fingerprint, common)
            raise ValueError(f"rank {rank} has different inputs: {difference}")


def _describe_difference(fingerprint: Fingerprint, common: Fingerprint) -> str:
    """Describe how ``fingerprint`` differs from ``common``, the one of most ranks."""
    if len(fingerprint) != len(common):
        return f"{len(fingerprint)} tensors, where most ranks have {len(common)}"
    pairs = zip(fingerprint, common, strict=True)
    (name, found, _), (_, usual, _) = next(pair for pair in pairs if pair[0] != pair[1])
    if found != usual:
        return f"{name} is {found}, where most ranks have {usual}"
    return f"the elements of {name} differ from those on most ranks"


def _replace_tensor(leaf: SplitLeaf | CopiedLeaf, tensor: Tensor) -> None:
    if isinstance(leaf, CopiedLeaf):
        leaf.tensor = tensor
    else:
        is_packed = not isinstance(leaf.value, Tensor)
        leaf.value = leaf.value._replace(data=tensor) if is_packed else tensor


def _name_of(leaf: SplitLeaf | CopiedLeaf) -> str:
    return (
        format_path(leaf.path) if isinstance(leaf, SplitLeaf) else "a tensor copied to every rank"
    )


def _hash_tensor(tensor: Tensor) -> int:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    words = torch.nn.functional.pad(data, (0, -len(data) % 8)).view(torch.int64)
    factors = torch.arange(1, 2 * len(words) + 1, 2, device=words.device) * _HASH_FACTOR
    return int((words * factors).sum())
