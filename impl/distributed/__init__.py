"""DataParallel's meaning over the processes of ``torch.distributed``.

    the arguments are split as in one process, and each rank takes its chunk
    the module computes it: one device a rank
    the outputs of all ranks are sent to all, and joined as in one process
    backward averages the gradients of parameters while it goes on

Letters used in this file: ``N`` is the extent of an input along ``dim``, ``k`` the number of
ranks.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function

from .._comm import check_weights
from .._device import CPU, DeviceLike, as_device
from ..scatter_gather import gather
from .broadcast import receive, take_buffers
from .gradients import Averages, averages_of
from .inputs import own_rows
from .outputs import Way, collect, own_part, single
from .process_group import Ranks, ranks_of
from .rank_call import Turn

__all__ = ["DataParallel", "data_parallel"]

T = TypeVar("T", bound=nn.Module)


class DataParallel(nn.Module, Generic[T]):
    """A module that computes each batch on all ranks of a process group.

    All ranks construct it, call it and call backward together. What they get is what
    ``impl.DataParallel(module, device_ids)`` gives on ``k`` devices: outputs for the whole batch,
    the same on every rank; after backward the gradients of the whole batch, summed, on every
    rank, those of arguments, too; and on rank 0 the buffers of the first replica. A parameter
    that no rank has used keeps its gradient, None if it has none.

    Args:
        module: What to compute, alike on all ranks. What rank 0's parameters and buffers hold is
            written to those of all ranks now, and the buffers' at each call.
        process_group: The ranks; None for the default group.
        device: This rank's device; ``module`` is moved there now. By default that of the
            module's first parameter or buffer.
        dim: The dimension along which inputs are split and outputs joined.
        chunk_sizes: One size or weight for each rank.
        source: The rank whose arguments count, and are sent to the others, which may call the
            module without any. By default every rank calls it with the same arguments.
        gather_output: Whether the outputs of all ranks are joined. Otherwise each rank gets its
            own part; an idle one gets what rank 0 gets, with tensors without rows.
        check_inputs: Whether to compare the arguments of all ranks at each call.
        options: More arguments of ``torch.nn.parallel.DistributedDataParallel``, such as
            ``bucket_cap_mb`` and ``gradient_as_bucket_view``.

    Attributes:
        module: The module.
        device: This rank's device.
        rank: This process's place in the group.
        size: ``k``.

    Raises:
        RuntimeError: There is no process group, or the modules of the ranks are not alike.
        NotImplementedError: A part of ``module`` has sparse gradients.
        ValueError: There are not ``k`` chunk sizes, one is negative or infinite, or all are 0;
            ``source`` is no rank.

    Note:
        Values that are no tensors, and errors, are pickled and unpickled between the ranks of
        one job. The module's random numbers are each rank's own. Attributes that it sets in
        forward stay, on each rank those of its own chunk. Between its outputs and its arguments
        gradients are ``k`` times as large as in one process, as hooks there see.
    """

    def __init__(
        self,
        module: T,
        process_group: dist.ProcessGroup | None = None,
        *,
        device: DeviceLike | None = None,
        dim: int = 0,
        chunk_sizes: Sequence[float] | None = None,
        source: int | None = None,
        gather_output: bool = True,
        check_inputs: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.module = module
        self.device = _place(module, device)
        self.dim = dim
        self.chunk_sizes = chunk_sizes
        self.source = source
        self.gather_output = gather_output
        self.check_inputs = check_inputs
        self._ranks = ranks_of(process_group, self.device)
        if chunk_sizes is not None:
            check_weights(chunk_sizes, self.size)
        if source is not None and not 0 <= source < self.size:
            raise ValueError(f"source is rank {source} of {self.size}")
        self._options = options
        self._is_summed = True
        self._current_averages()

    @property
    def rank(self) -> int:
        """This process's place in the group."""
        return self._ranks.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._ranks.size

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the module's outputs for the whole batch.

        Args:
            inputs: Positional arguments of the module. Tensors in them are split, unless marked
                ``Whole``.
            kwargs: Keyword arguments, likewise.

        Returns:
            What the module returns, its tensors joined on this rank's device. With one rank the
            module is simply called. Without ``gather_output`` this rank's part.

        Raises:
            ValueError: Two tensors give different numbers of chunks; with ``check_inputs``: the
                arguments of a rank differ from those of the others.
            RuntimeError: A rank has ended, or does not answer; the text says which.
            Exception: A rank raised one, on every rank the same: that of the first rank, of the
                same type where it can be sent and built from a text, else a RuntimeError.
        """
        ranks = self._ranks
        ranks.check()
        if self.source is not None:
            inputs, kwargs = receive((inputs, kwargs), ranks, self.source, self.device)
        averages = self._current_averages()
        take_buffers(self.module, ranks)
        turn = Turn(self.module, ranks, self.device, self.dim, self.chunk_sizes)
        turn.run(inputs, kwargs, is_checked=self.check_inputs)
        reports = turn.compare()
        begin = partial(averages.begin, is_summed=self._is_summed)
        way = Way(begin, ranks.size, turn.thread, averages.trained, self.device)
        if ranks.size == 1:
            return single(turn.output, way)
        if not self.gather_output:
            return own_part(reports, turn.tensors, ranks.rank, way, self.dim)
        outputs = collect(reports, turn.tensors, ranks, way, self.device)
        return gather(outputs, self.device, self.dim)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let each rank keep its own gradients of what is computed in this context.

        They are summed, with those that are there then, in the next backward outside of it.
        Until then what is in ``grad`` is ``k`` times the gradient of this rank's part.
        """
        before, self._is_summed = self._is_summed, False
        try:
            yield
        finally:
            self._is_summed = before

    def part(self, value: Any) -> Any:
        """Give the rows of nested ``value`` that this rank computes, such as those of a target.

        Args:
            value: What every rank has; tensors in it are split as arguments are.

        Returns:
            This rank's part, on its device; on an idle rank with tensors without rows.

        Raises:
            ValueError: Two tensors give different numbers of chunks.
        """
        return own_rows(value, self._ranks, self.device, self.dim, self.chunk_sizes)

    def mean(self, losses: Tensor) -> Tensor:
        """Give the mean of the losses of all ranks' rows, for ``gather_output=False``.

        Args:
            losses: One for each of this rank's rows, or more; none on an idle rank.

        Returns:
            A scalar, the same on every rank. Its backward gives the gradients that the mean over
            the whole batch has.
        """
        mean: Tensor = _Mean.apply(self._ranks, losses)  # type: ignore[no-untyped-call] # torch leaves it untyped
        return mean

    def _current_averages(self) -> Averages:
        return averages_of(self.module, self._ranks, self._options)


def data_parallel(
    module: nn.Module,
    inputs: Any,
    process_group: dist.ProcessGroup | None = None,
    *,
    device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Compute one batch on all ranks, as a new :class:`DataParallel` does.

    Args:
        module: What to compute.
        inputs: A tuple of positional arguments, or the one argument; None for no argument.
        process_group: As for :class:`DataParallel`.
        device: As for :class:`DataParallel`.
        dim: As for :class:`DataParallel`.
        module_kwargs: Keyword arguments.
        options: As for :class:`DataParallel`.

    Returns:
        What :meth:`DataParallel.forward` returns.

    Raises:
        Exception: As from :class:`DataParallel` and its forward.
    """
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    net = DataParallel(module, process_group, device=device, dim=dim, **options)
    return net(*inputs, **(module_kwargs or {}))


class _Mean(Function):
    """The mean of what all ranks have; in backward each rank's share of its gradient."""

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, losses: Tensor) -> Tensor:
        shares = ranks.exchange((losses.double().sum().item(), losses.numel()))
        ctx.count = sum(count for _, count in shares)
        ctx.shape = losses.shape
        return losses.new_tensor(sum(total for total, _ in shares) / ctx.count)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, (grads[0] / ctx.count).expand(ctx.shape)


def _place(module: nn.Module, device: DeviceLike | None) -> torch.device:
    if device is None:
        first = next(chain(module.parameters(), module.buffers()), None)
        return CPU if first is None else first.device
    found = as_device(device)
    module.to(found)
    return found
