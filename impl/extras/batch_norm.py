"""Batch norm that normalizes by the statistics of the whole batch, not of a chunk.

Letters used in this file: ``N`` is the number of rows of the batch, ``C`` the number of channels.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from .._arguments import argument, check_tensor
from .._copies import to_device
from .._replica_group import ReplicaGroup, running_replica
from .._torch_private import BatchNorm

__all__ = ["SyncBatchNorm"]

_M = TypeVar("_M", bound=nn.Module)

#: The reason why a replica has no other replicas.
_NO_CALL = "outside of parallel_apply, as in threads of a replica and in torch.utils.checkpoint"


class SyncBatchNorm(BatchNorm):
    """Batch norm whose replicas in a ``DataParallel`` share the statistics of the whole batch.

    Outputs, gradients and running statistics are those of ``nn.BatchNorm1d``, ``nn.BatchNorm2d``
    or ``nn.BatchNorm3d`` for the whole batch on one device, apart from rounding. The replicas
    exchange mean and variance of their chunks, so each waits until all have reached the layer.
    In evaluation with running statistics they do not wait. Outside of replicas the layer computes
    as ``nn.BatchNorm2d`` does. It has the arguments and the ``state_dict`` of ``nn.BatchNorm2d``.

    Note:
        All replicas must call the same layers in the same order, in the same grad mode, and at
        the same time, so not with ``in_turn``, in compiled modules, in training inside
        :meth:`DataParallel.map`, or in ``torch.utils.checkpoint``, which calls a replica again in
        backward. In nested calls of :func:`parallel_apply` the batch is that of the innermost one.
    """

    #: The same object in all replicas of a layer.
    identity: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.identity = object()

    @classmethod
    def convert_sync_batchnorm(cls, module: _M) -> _M:
        """Convert each ``BatchNorm1d``, ``BatchNorm2d`` and ``BatchNorm3d`` in place.

        The layers stay the same objects, with their parameters, buffers and hooks.

        Args:
            module: A module, or a ``DataParallel`` with its module.

        Returns:
            ``module``.

        Raises:
            TypeError: A batch norm has another class, such as a subclass with its own forward.
                Nothing is converted then.
        """
        convertible = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, cls
        with argument("module"):
            for name, layer in module.named_modules():
                if isinstance(layer, BatchNorm) and type(layer) not in convertible:
                    raise TypeError(f"cannot convert {name!r}, a {type(layer).__name__}")
        for layer in module.modules():
            if type(layer) in convertible[:-1]:
                layer.__class__ = cls
                layer.identity = object()  # type: ignore[assignment] # not a parameter
        return module

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name in PyTorch
        """Normalize each channel of ``input``, of shape ``(N, C)`` or ``(N, C, *)``.

        Raises:
            ValueError: ``input`` has less than two dimensions, or the batch one value a channel.
            RuntimeError: The replicas cannot wait for each other, one does not reach the layer, or
                their grad modes differ.
        """
        member = self._find_group()
        if member is None:
            return super().forward(input)
        self._check_input_dim(input)
        group, index = member
        part = _Part(
            torch.stack(_Moments.apply(input)),  # type: ignore[no-untyped-call] # in torch
            input.numel() // max(1, input.size(1)),
            torch.is_grad_enabled(),
        )
        # If two replicas both make an object, `setdefault` returns the same one to both.
        exchange = group.exchanges.setdefault(_Exchange, _Exchange())
        (mean, variance), count = exchange.swap(group, index, self, part)
        if count == 1:
            size = input.size()
            raise ValueError(f"Expected more than 1 value per channel when training, got {size}")
        if index == 0 and self.training and self.track_running_stats:
            self._update_statistics(mean.detach(), variance.detach(), count)
        # PyTorch's kernel normalizes by constant statistics. The gradients of the statistics flow
        # through weight and bias, whose values do not change.
        scale = (variance + self.eps).rsqrt()
        weight = scale / scale.detach()
        weight = weight if self.weight is None else weight * self.weight
        bias = (mean.detach() - mean) * scale.detach() * weight
        bias = bias if self.bias is None else bias + self.bias
        constants = mean.detach(), variance.detach()
        return functional.batch_norm(input, *constants, weight, bias, eps=self.eps)

    def _find_group(self) -> tuple[ReplicaGroup, int] | None:
        """Return the replicas that share statistics, and this one's index, if there are others."""
        if not self.training and self.running_mean is not None:
            return None
        member = running_replica.get()
        if member is None and "_former_parameters" not in self.__dict__:
            return None
        obstacle = _NO_CALL if member is None else member[0].obstacle
        if obstacle:
            raise RuntimeError(f"SyncBatchNorm cannot share statistics of replicas {obstacle}")
        return member if member is not None and len(member[0].modules) > 1 else None

    def _update_statistics(self, mean: Tensor, variance: Tensor, count: int) -> None:
        factor = self.momentum or 0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1 / float(self.num_batches_tracked)
        if not count:
            return  # As in PyTorch, a batch without values has no statistics, but is counted.
        unbiased = variance * (count / (count - 1))
        for running, batch in ((self.running_mean, mean), (self.running_var, unbiased)):
            if running is not None:
                running.mul_(1 - factor).add_(batch, alpha=factor)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - the name in PyTorch
        check_tensor("input", input)
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")


class _Moments(Function):
    """Mean and variance of each channel. Without this, float32 copies of half inputs are saved."""

    @staticmethod
    def forward(ctx: Any, chunk: Tensor) -> tuple[Tensor, Tensor]:
        dims = [0, *range(2, chunk.dim())]
        wide = chunk.to(torch.promote_types(chunk.dtype, torch.float32))
        # The moments of no values are NaN; the weight of an empty chunk is 0.
        if chunk.numel():
            variance, mean = torch.var_mean(wide, dims, correction=0)
        else:
            variance, mean = wide.sum(dims), wide.sum(dims)
        ctx.save_for_backward(chunk, mean)
        return mean, variance

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_variance: Tensor) -> Tensor:
        chunk, mean = ctx.saved_tensors
        shape = [1, -1] + [1] * (chunk.dim() - 2)
        count = max(1, chunk.numel() // max(1, len(mean)))
        slope, offset = (each.view(shape) / count for each in (2 * grad_variance, grad_mean))
        grad: Tensor = (chunk - mean.view(shape)) * slope + offset
        return grad.to(chunk.dtype)


class _Part(NamedTuple):
    """The moments of a chunk."""

    moments: Tensor  # Mean and variance, of shape ``(2, C)``.
    num_values: int  # The number of values per channel.
    with_grad: bool  # The grad mode of the replica.


#: The moments of the batch, and its number of values per channel.
_Result = tuple[Tensor, int]


def _combine(parts: Sequence[_Part]) -> list[_Result]:
    """Return for each part the result, with the moments on its device."""
    total = sum(part.num_values for part in parts)
    moments = torch.stack([to_device(each.moments, parts[0].moments.device) for each in parts])
    weights = moments.new_tensor([[part.num_values / max(1, total)] for part in parts])
    means, variances = moments.unbind(1)
    mean = (means * weights).sum(0)
    variance = ((variances + (means - mean).square()) * weights).sum(0)
    # One tensor would add the gradients of the replicas in the order in which they are ready.
    results = torch.stack([mean, variance]).expand_as(moments).unbind()
    devices = [part.moments.device for part in parts]
    return [(each, total) for each in map(to_device, results, devices)]


class _Exchange:
    """The exchange of statistics between the replicas of one group, one layer after the other."""

    # A reference to the group would make a cycle.
    def __init__(self) -> None:
        self._changed = Condition()
        #: For each replica that waits: its layer and its part.
        self._waiting: dict[int, tuple[SyncBatchNorm, _Part]] = {}
        #: For each replica that has not read it yet: the result.
        self._results: dict[int, _Result] = {}
        #: The text of the error of all later layers.
        self._failure = ""

    def swap(self, group: ReplicaGroup, index: int, layer: SyncBatchNorm, part: _Part) -> _Result:
        """Wait until all replicas have passed a part, and return the result of replica ``index``.

        Raise RuntimeError if another replica has ended, waits in another layer, or has another
        grad mode.
        """
        with self._changed:
            self._waiting[index] = layer, part
            identities = {id(each.identity) for each, _ in self._waiting.values()}
            if group.ended or len(identities) > 1:
                self._fail(group)
            elif len(self._waiting) == len(group.modules):
                parts = [part for _, (_, part) in sorted(self._waiting.items())]
                self._waiting.clear()
                try:
                    self._complete(parts, partial(_describe, group, index, layer))
                except BaseException:
                    self._failure = (
                        f"{_describe(group, index, layer)} has failed in replica {index}"
                    )
                    raise
                finally:
                    self._changed.notify_all()
            while not (index in self._results or self._failure):
                self._changed.wait()
            if index in self._results:
                return self._results.pop(index)
            group.abandoned.add(index)
            raise RuntimeError(self._failure)

    def _complete(self, parts: Sequence[_Part], describe: Callable[[], str]) -> None:
        on = [index for index, part in enumerate(parts) if part.with_grad]
        if 0 < len(on) < len(parts):
            off = sorted({*range(len(parts))}.difference(on))
            self._failure = (
                f"{describe()} shares statistics, and gradients, of all replicas, which must run "
                f"it in the same grad mode, but grad mode is on in replicas {on}, and off in "
                f"replicas {off}"
            )
        else:
            self._results.update(enumerate(_combine(parts)))

    def note_end(self, group: ReplicaGroup) -> None:
        """Make exchanges fail that wait or begin later, because a replica will not come."""
        # A replica waits before it reads `ended`, so the lock is seldom needed.
        if self._waiting:
            with self._changed:
                if self._waiting:
                    self._fail(group)

    def _fail(self, group: ReplicaGroup) -> None:
        if not self._failure:
            waiting = sorted(self._waiting.items())
            facts = [
                f"replica {i} waits in {_describe(group, i, each)}" for i, (each, _) in waiting
            ]
            if group.ended:
                ended = group.ended[0]
                name = "the call" if ended is None else f"replica {ended}"
                facts.append(f"{name} has ended")
            rule = "All replicas must call the same layers in the same order"
            self._failure = f"{rule}, but {' and '.join(facts)}"
        self._changed.notify_all()


def _describe(group: ReplicaGroup, index: int, layer: nn.Module) -> str:
    """Return the class of ``layer`` and its name in replica ``index``, if it has one."""
    root = group.modules[index]
    names = root.named_modules() if isinstance(root, nn.Module) else ()
    name = next((name for name, module in names if module is layer), "")
    return f"{type(layer).__name__} {name!r}" if name else type(layer).__name__
