"""``DataParallel`` over the processes of ``torch.distributed``.

    1. Each rank splits the inputs as in one process, and keeps its own chunk.
    2. Each rank runs the module on its chunk, on its own device.
    3. The ranks all-gather the outputs, and concatenate them as in one process.
    4. Backward sums the gradients of parameters and inputs over the ranks.

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

from .._arguments import argument, as_bool, as_int, check_tensor
from .._devices import CPU, DeviceLike, as_device_or_current, device_index
from .._scatter_leaves import check_chunk_sizes
from ..scatter_gather import gather_outputs
from .broadcast import broadcast_inputs, sync_buffers
from .call import RankCall
from .exchange import exchange
from .gradients import GradientReducer, get_reducer
from .inputs import ShardedInputs, check_same_inputs
from .process_group import Communicator, get_communicator

__all__ = ["DataParallel", "data_parallel"]

T = TypeVar("T", bound=nn.Module)


class DataParallel(nn.Module, Generic[T]):
    """A module that computes each batch on all ranks of a process group.

    All ranks construct it, call it and run backward together. The results are those of
    ``impl.DataParallel(module, device_ids)`` on ``k`` devices: every rank gets the outputs of
    the whole batch and, after backward, the summed gradients of parameters and inputs. After a
    call, the buffers on rank 0 are those of the first replica. A parameter that no rank uses keeps
    its ``grad``, which may be None.

    Args:
        module: The module to run, the same on all ranks. The constructor broadcasts the parameters
            and buffers of rank 0. Each call broadcasts the buffers again.
        process_group: The process group; None for the default group.
        device: This rank's device, to which the constructor moves ``module``. By default the
            device of the module's first parameter or buffer.
        dim: The dimension along which inputs are split and outputs concatenated.
        chunk_sizes: One size or weight for each rank.
        source: The rank that broadcasts its inputs to the other ranks, whose calls need no inputs.
            By default every rank must call the module with the same inputs.
        gather_output: Whether to gather the outputs of all ranks. If not, each rank gets its own
            output. A rank without a chunk gets an output with the structure of the output of
            rank 0, and its tensors have no rows.
        check_inputs: Whether to compare the inputs of all ranks at each call.
        options: Further arguments of ``torch.nn.parallel.DistributedDataParallel``, such as
            ``bucket_cap_mb`` and ``gradient_as_bucket_view``.

    Raises:
        RuntimeError: There is no process group, or the modules of the ranks differ.
        NotImplementedError: A submodule has sparse gradients, or a parameter a hook of
            ``register_post_accumulate_grad_hook``. Calls and backward raise this error, too.
        ValueError: There are not ``k`` chunk sizes, one is negative or infinite, or all are 0;
            ``source`` is not a rank.
        TypeError: ``dim`` or ``source`` is not an int.

    Note:
        Errors, and values other than tensors, are pickled, sent to the other ranks of the job, and
        unpickled there. Attributes that the module sets in forward remain set.
        ``docs/many_processes.md`` lists the other differences from DataParallel.
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
        if not issubclass(type(module), nn.Module):
            raise TypeError(f"module must be a Module, not {type(module).__name__}")
        with argument("module or device"):
            self.device = _place_module(module, device)
        self.module = module
        self.dim = as_int("dim", dim)
        with argument("process_group"):
            self._communicator = get_communicator(process_group, self.device)
        if chunk_sizes is not None:
            check_chunk_sizes(chunk_sizes, self.size)
        self.chunk_sizes = chunk_sizes
        self.source = source if source is None else as_int("source", source)
        if source is not None and not 0 <= source < self.size:
            raise ValueError(f"source {source} is not a rank of a group of {self.size} ranks")
        self.gather_output = as_bool("gather_output", gather_output)
        self.check_inputs = as_bool("check_inputs", check_inputs)
        self._options = options
        self._require_grad_sync = True
        self._get_reducer()

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self._communicator.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._communicator.size

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Return the module's outputs for the whole batch.

        Args:
            inputs: Positional arguments of the module, split like those of ``impl.DataParallel``.
            kwargs: Keyword arguments, split in the same way.

        Returns:
            The outputs of all ranks, concatenated on this rank's device. Without
            ``gather_output``, or with one rank, this rank's output. Values in it other than
            tensors are unpickled copies.

        Raises:
            ValueError: Two tensors have different numbers of chunks, or, with ``check_inputs``,
                the inputs of the ranks differ.
            RuntimeError: A rank has ended or does not respond; the text names it.
            Exception: A rank raised an exception. Every rank raises the exception of the lowest
                failed rank. It has the same type if that can be pickled and built from a text,
                else it is a RuntimeError.
        """
        communicator = self._communicator
        communicator.raise_if_failed()
        if self.source is not None:
            inputs, kwargs = broadcast_inputs((inputs, kwargs), communicator, self.source)
        reducer = self._get_reducer()
        sync_buffers(self.module, communicator)
        shard = partial(ShardedInputs, communicator, inputs, kwargs, self.dim, self.chunk_sizes)
        if self.check_inputs:
            location = f"in rank {communicator.rank} on device {self.device}"
            check_same_inputs(exchange(communicator, lambda: shard().fingerprint(), location))
        prepare = partial(reducer.prepare_for_backward, require_grad_sync=self._require_grad_sync)
        call = RankCall(communicator, prepare, [*reducer.trainable.values()])
        call.run(self.module, shard)
        if communicator.size == 1 or not self.gather_output:
            return call.local_output(self.dim)
        return gather_outputs(call.gather_outputs(), self.device, self.dim, module=self.module)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Return a context manager for calls that accumulate gradients without communication.

        The backward of such a call does not sum the gradients of parameters over the ranks. The
        next backward of a call outside of the block sums the accumulated gradients. Until then
        ``grad`` is ``k`` times the gradient of this rank's chunk.
        """
        before, self._require_grad_sync = self._require_grad_sync, False
        try:
            yield
        finally:
            self._require_grad_sync = before

    def part(self, value: Any) -> Any:
        """Return this rank's chunk of ``value``, for example of the targets of the batch.

        Args:
            value: Any nested value, the same on every rank. Its tensors are split like inputs.

        Returns:
            This rank's chunk, on its device. On a rank without a chunk the tensors have no rows.
        """
        with argument("value"):
            sharded = ShardedInputs(self._communicator, (value,), {}, self.dim, self.chunk_sizes)
            ((chunk,), _) = sharded.local_inputs()
        return chunk

    def mean(self, losses: Tensor) -> Tensor:
        """Return the mean of the losses of all ranks. Use it with ``gather_output=False``.

        Args:
            losses: One or more losses for each of this rank's rows; no losses on a rank without a
                chunk.

        Returns:
            A scalar, the same on every rank. Its backward computes the gradients of the mean over
            the whole batch.

        Raises:
            TypeError: ``losses`` is not a tensor.
            ValueError: The losses of all ranks have no elements.
        """
        check_tensor("losses", losses)
        mean: Tensor = _MeanOverRanks.apply(self._communicator, losses)  # type: ignore[no-untyped-call] # torch leaves it untyped
        return mean

    def _get_reducer(self) -> GradientReducer:
        return get_reducer(self.module, self._communicator, self._options)


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
    """Compute one batch on all ranks by a new :class:`DataParallel`.

    ``inputs`` is a tuple of positional arguments, or a single argument; None for no argument.
    ``module_kwargs`` are keyword arguments. The other arguments and the errors are those of the
    class, and the result is that of its forward.
    """
    if not issubclass(type(inputs), tuple):
        inputs = () if inputs is None else (inputs,)
    with argument("module_kwargs"):
        kwargs = {} if module_kwargs is None else dict(module_kwargs)
    net = DataParallel(module, process_group, device=device, dim=dim, **options)
    return net(*inputs, **kwargs)


class _MeanOverRanks(Function):
    """The mean of the elements of all ranks. Backward returns the gradients of local elements."""

    @staticmethod
    def forward(ctx: Any, communicator: Communicator, losses: Tensor) -> Tensor:
        with argument("losses"):
            local = losses.double().sum().item(), losses.numel()
        sums = communicator.all_gather_object(local)
        ctx.count = sum(count for _, count in sums)
        if ctx.count == 0:
            raise ValueError("all ranks have passed losses without elements to mean")
        ctx.shape = losses.shape
        with argument("losses"):
            return losses.new_tensor(sum(total for total, _ in sums) / ctx.count)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, (grads[0] / ctx.count).expand(ctx.shape)


def _place_module(module: nn.Module, device: DeviceLike | None) -> torch.device:
    """Move ``module`` to ``device`` unless that is None. Return the device of the module."""
    if device is None:
        first = next(chain(module.parameters(), module.buffers()), None)
        return CPU if first is None else first.device
    device_index(device, allow_cpu=True)  # Raises ValueError for a device without index.
    placed = as_device_or_current(device)
    module.to(placed)
    return placed
