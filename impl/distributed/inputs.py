"""A rank's part of nested arguments, by the rules of ``scatter``.

``k`` is the number of ranks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._pytree import Copied, Leaf, Node, Split, Survey, write_trail
from ..scatter_gather import share_out, split_leaf
from .autograd import Entry
from .process_group import Ranks

__all__ = ["Arguments", "Fingerprint", "check_alike", "own_rows"]

#: What two ranks' arguments have in common where they are equal, as a rule.
Fingerprint = list[tuple[str, tuple[int, ...], str, int]]

#: Multiplies positions, so that a sum tells elements in another order.
_ODD = 0x9E3779B97F4A7C15 - 2**64


class Arguments:
    """The arguments of a call.

    Args:
        ranks: The ranks.
        args: Positional arguments of the module.
        kwargs: Keyword arguments.
        device: This rank's device.
        dim: The dimension to split.
        weights: As for ``scatter``: the ranks' shares.

    Attributes:
        active: How many ranks get a part, from rank 0 on.
        thread: What leads gradients of other ranks' parts to the arguments; None where these
            require none.
    """

    def __init__(
        self,
        ranks: Ranks,
        args: Any,
        kwargs: Any,
        device: torch.device,
        dim: int,
        weights: Sequence[float] | None,
    ) -> None:
        self._survey = Survey()
        take = self._survey.take
        self._nodes: list[Node] = [take(args, dim, "args"), take(kwargs, dim, "kwargs")]
        self._rank, self._home = ranks.rank, device
        self._shares: list[list[int]] = []
        self.active = ranks.size if args or kwargs else 1
        if self._survey.splits:
            self._shares = share_out(self._survey.splits, ranks.size, weights)
            self.active = len(self._shares[0])
        self.thread = self._enter(ranks, device)

    def part(self) -> tuple[Any, Any]:
        """Give this rank's positional and keyword arguments, on its device."""
        pieces: dict[Leaf, list[Any]] = {
            leaf: [leaf.tensor.to(self._home)] for leaf in self._survey.copied
        }
        for split, lengths in zip(self._survey.splits, self._shares, strict=True):
            pieces[split] = [self._chunk(split, lengths).to(self._home)]
        args, kwargs = (node.columns(1, pieces)[0] for node in self._nodes)
        return args, kwargs

    def _chunk(self, split: Split, lengths: Sequence[int]) -> Any:
        # For an idle rank a chunk without rows; only `own_rows` asks for that.
        dealt = [*lengths, *[0] * (self._rank + 1 - len(lengths))]
        here = [_tensor(split).device] * len(dealt)
        return split_leaf(split, here, dealt)[self._rank]

    def fingerprint(self) -> Fingerprint:
        """Sum the tensors up; equal for equal arguments."""
        return [(_name(leaf), *_sum_up(_tensor(leaf))) for leaf in self._leaves()]

    def _enter(self, ranks: Ranks, device: torch.device) -> Tensor | None:
        leaves = [leaf for leaf in self._leaves() if _tensor(leaf).requires_grad]
        if not leaves or not torch.is_grad_enabled():
            return None
        thread, *tensors = Entry.apply(  # type: ignore[no-untyped-call] # torch leaves it untyped
            ranks, *(_tensor(leaf).to(device) for leaf in leaves)
        )
        for leaf, tensor in zip(leaves, tensors, strict=True):
            _replace(leaf, tensor)
        return thread  # type: ignore[no-any-return] # untyped

    def _leaves(self) -> list[Split | Copied]:
        return [*self._survey.splits, *self._survey.copied]


def own_rows(
    value: Any,
    ranks: Ranks,
    device: torch.device,
    dim: int,
    weights: Sequence[float] | None,
) -> Any:
    """Give the rows of ``value`` that this rank computes, without any on an idle rank."""
    arguments = Arguments(ranks, (value,), {}, device, dim, weights)
    ((found,), _) = arguments.part()
    return found


def check_alike(fingerprints: Sequence[Fingerprint | None]) -> None:
    """Refuse arguments that differ between ranks.

    Args:
        fingerprints: One of each rank; None where there is none.

    Raises:
        ValueError: Some differ from those of most ranks, or of rank 0 if there are no most.
    """
    found = [each for each in fingerprints if each is not None]
    if not found:
        return
    common = max(found, key=found.count)
    for rank, each in enumerate(fingerprints):
        if each is not None and each != common:
            raise ValueError(f"rank {rank} has other arguments: {_difference(each, common)}")


def _difference(one: Fingerprint, common: Fingerprint) -> str:
    if len(one) != len(common):
        return f"{len(one)} tensors, where most ranks have {len(common)}"
    pairs = zip(one, common, strict=True)
    own, other = next(pair for pair in pairs if pair[0] != pair[1])
    for what, field in (("shape", 1), ("dtype", 2)):
        if own[field] != other[field]:
            return f"{own[0]} has {what} {own[field]}, where most ranks have {other[field]}"
    return f"{own[0]} has other elements than on most ranks"


def _tensor(leaf: Split | Copied) -> Tensor:
    if isinstance(leaf, Copied):
        return leaf.tensor
    found: Tensor = leaf.value if isinstance(leaf.value, Tensor) else leaf.value.data
    return found


def _replace(leaf: Split | Copied, tensor: Tensor) -> None:
    if isinstance(leaf, Copied):
        leaf.tensor = tensor
    else:
        is_packed = not isinstance(leaf.value, Tensor)
        leaf.value = leaf.value._replace(data=tensor) if is_packed else tensor


def _name(leaf: Split | Copied) -> str:
    return write_trail(leaf.trail) if isinstance(leaf, Split) else "a tensor that goes to each"


def _sum_up(tensor: Tensor) -> tuple[tuple[int, ...], str, int]:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    words = torch.nn.functional.pad(data, (0, -len(data) % 8)).view(torch.int64)
    weights = torch.arange(1, 2 * len(words) + 1, 2, device=words.device) * _ODD
    return tuple(tensor.shape), str(tensor.dtype), int((words * weights).sum())
