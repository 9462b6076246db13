"""DataParallel whose replicas compute the loss, so that no device has the outputs of the batch."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from numbers import Real
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._arguments import argument, as_int
from .._containers import format_path
from .._devices import DeviceLike
from .._inputs import InputLeaves, SplitAlong, find_tensors
from .._scatter_leaves import has_one_row_per_device
from .._torch_private import exclude_from_compilation
from ..data_parallel import DataParallel
from ..scatter_gather import gather
from ._criteria import Criterion, check_mean, counts_targets, losses_and_weights, reduction_of

__all__ = ["DataParallelWithLoss"]

#: A function of output and target that returns the number by which a mean divides.
_Divisor = Callable[[Any, Any], Tensor | float]


class DataParallelWithLoss(DataParallel[nn.Module]):
    """A ``DataParallel`` whose replicas compute the loss. A forward returns the loss of the batch.

    Each replica calls ``criterion(output, target)`` with the module's output for its chunk, of any
    type, and with its chunk of the target. The result is the loss of the whole batch on one
    device, apart from rounding, if no part of the loss depends on several rows.

    The attribute ``reduction`` of the criterion, or the keyword of a ``functools.partial``, says
    how the losses are reduced: ``"none"`` concatenates them, ``"sum"`` adds them, and any other
    value averages them. The old ``size_average`` and ``reduce`` are read, too. All are read in
    each forward. Means are weighted by the rows of the chunks; those of ``nn.CrossEntropyLoss``,
    ``nn.LinearCrossEntropyLoss``, ``nn.NLLLoss`` and their functions by the class weights of the
    targets that are not ``ignore_index``. ``mean_over`` says how those of a criterion that is not
    PyTorch's are weighted.

    Args:
        module: The module.
        criterion: A module or a function. The parameters and buffers of a module are copied to the
            replicas.
        device_ids: See :class:`DataParallel`. With one device, the constructor moves the
            criterion there, too.
        output_device: The device of the loss.
        dim: The dimension along which inputs and target are split.
        reduction: The reduction of a criterion that has none.
        mean_over: The number by which the mean of a criterion divides: ``"rows"`` for the rows of
            the chunk, or a function of output and target that returns it for the chunk, such as
            ``lambda output, target: (target != 255).sum()``. None for the rules above. The mean of
            a criterion that is not PyTorch's needs one of them.
        options: The other arguments of :class:`DataParallel`.

    Attributes:
        criterion: The argument ``criterion``. If it is a module, its parameters are parameters of
            the wrapper, and the keys of its state begin with ``criterion.``.

    Raises:
        TypeError: ``module`` is no module, ``criterion`` is a class or cannot be called, or
            ``mean_over`` is another object.
        ValueError: ``reduction`` or ``mean_over`` is another text.
    """

    criterion: Criterion
    _with_loss: "_ModuleWithLoss | None" = None
    _mean_over: str | _Divisor | None = None  # For wrappers pickled without it.

    def __init__(
        self,
        module: nn.Module,
        criterion: Criterion,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        *,
        reduction: str = "mean",
        mean_over: str | _Divisor | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must be a Module, not {type(module).__name__}")
        if isinstance(criterion, type):
            name = criterion.__name__
            raise TypeError(
                f"criterion must be a module or a function, not the class {name}: {name}()"
            )
        if not callable(criterion):
            raise TypeError(f"criterion must be callable, not {type(criterion).__name__}")
        if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
            with argument("reduction"):  # The object may have no repr.
                raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
        _check_mean_over(mean_over)
        options = {"scalar_warning": False, **options}
        super().__init__(module, device_ids, output_device, dim, **options)
        self.criterion = criterion
        self._default_reduction = reduction
        self._mean_over = mean_over
        if len(self.device_ids) == 1 and isinstance(criterion, nn.Module):
            criterion.to(self.src_device_obj)
        # Make it here, so that a failed forward leaves the wrapper as it was.
        self._replicated_module()

    def forward(self, *inputs: Any, target: Any, **kwargs: Any) -> Tensor:
        """Compute the loss of one batch.

        Args:
            inputs: Positional arguments of the module.
            target: The second argument of the criterion, a tensor or a nested value. Its tensors
                are split like those of the inputs.
            kwargs: Keyword arguments of the module.

        Returns:
            A tensor without dimensions on ``output_device``. With the reduction ``"none"``, the
            losses that the replicas have returned, concatenated.

        Raises:
            ValueError: Tensors that are split have different numbers of rows. The criterion has
                not returned one number, and the reduction is not ``"none"``; or it has, and the
                reduction is ``"none"``. Or a mean cannot be weighted: the criterion is not
                PyTorch's, and there is no ``mean_over``; the replicas have different numbers of
                elements for each row, as for packed sequences; the reduction is ``"batchmean"``
                and the target is split along another dimension than 0; or a subclass overrides
                :meth:`scatter` and no argument has a tensor.
            TypeError: The criterion has not returned a tensor.
            Exception: See :meth:`DataParallel.forward`.
        """
        loss: Tensor = super().forward(*inputs, target=target, **kwargs)
        return loss

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        """Reduce the losses of the replicas to that of the batch. A subclass may override this."""
        if isinstance(outputs[0], _Part):
            return _mean_of_batch(outputs, output_device)
        is_sum = self._replicated_module().reduction() == "sum"
        dim = 0 if is_sum else self.dim
        losses = gather(outputs, output_device, dim=dim, scalar_warning=self.scalar_warning)
        return losses.sum() if is_sum else losses

    def _replicated_module(self) -> "_ModuleWithLoss":
        """Return the module that is replicated: ``module`` and ``criterion``."""
        network = self._with_loss
        members = self.module, self.criterion
        if network is None or not all(map(is_, (network.module, network.criterion), members)):
            network = _ModuleWithLoss(*members, self._default_reduction, self._mean_over)
            # It is no submodule, so it has no keys in the state.
            vars(self)["_with_loss"] = network
        return network

    def _check_method(self, name: str) -> None:
        raise TypeError(f"{type(self).__name__} calls only forward: use DataParallel.call")

    @exclude_from_compilation
    def _compute_on_several(
        self, method: str | None, inputs: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> Any:
        kwargs = kwargs or {}
        reduction = self._replicated_module().reduction()
        is_mean = reduction not in ("sum", "none")
        if is_mean and self._mean_over is None and not counts_targets(self.criterion):
            check_mean(self.criterion)
        count = _count_rows(inputs, kwargs, self.dim, len(self.device_ids))
        if count is not None:
            if reduction == "batchmean" and self._mean_over is None:
                _check_batchmean(kwargs["target"], self.dim)
            # `scatter` splits this tensor without elements as it splits the arguments.
            rows = torch.empty(count, 0, device=self.src_device_obj)
            kwargs = dict(kwargs, _rows=SplitAlong(rows, 0))
        elif type(self).scatter is DataParallel.scatter and "scatter" not in vars(self):
            # Each replica would get the whole batch.
            return self._compute_on_one(None, inputs, kwargs)
        elif is_mean:
            raise ValueError(
                "a mean cannot be weighted, because a subclass overrides scatter(), and no tensor "
                "in the arguments says how many rows there are: let the criterion return sums"
            )
        return super()._compute_on_several(None, inputs, kwargs)


class _Part(NamedTuple):
    """The sum and the weight of the losses of one chunk, in float32 or wider."""

    total: Tensor
    weight: Tensor
    dtype: torch.dtype  # That of the loss.
    #: If the weight is the number of rows: this number, and the elements of each tensor.
    rows: int = 0
    sizes: tuple[int, ...] = ()
    #: Whether `weight` is 0, and `total` is the loss of the chunk itself, which is finite.
    is_sum: bool = False


class _ModuleWithLoss(nn.Module):
    """A module and its criterion. It returns the loss; for a mean of a chunk, a :class:`_Part`."""

    def __init__(
        self,
        module: nn.Module,
        criterion: Criterion,
        default: str,
        mean_over: str | _Divisor | None,
    ) -> None:
        super().__init__()
        self.module, self.criterion = module, criterion
        self.default, self.mean_over = default, mean_over

    def reduction(self) -> str:
        """Return the current reduction of the criterion."""
        return reduction_of(self.criterion, self.default)

    def forward(
        self, *inputs: Any, target: Any, _rows: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Return the loss. ``_rows`` has the rows of the chunk, if there are several chunks."""
        reduction = self.reduction()
        output = self.module(*inputs, **kwargs)
        if reduction == "none":
            losses = self.criterion(output, target)
            if _rows is not None and isinstance(losses, Tensor) and losses.dim() == 0:
                raise ValueError(
                    "the criterion returned one number, and the reduction 'none' needs one for "
                    "each row: pass a function that calls the criterion, or return all numbers"
                )
            return losses
        is_mean = reduction != "sum" and _rows is not None
        is_index = isinstance(target, Tensor) and not target.is_floating_point()
        if is_mean and is_index and self.mean_over is None and counts_targets(self.criterion):
            return _sum_over_targets(self.criterion, output, target)
        divisor = None
        if is_mean and callable(self.mean_over):  # The criterion may change its arguments.
            with argument("mean_over"):
                divisor = _as_divisor(self.mean_over(output, target))
        loss = _as_number(self.criterion(output, target), reduction)
        if _rows is None or not is_mean:
            return loss
        if divisor is not None:
            return _divided_part(loss, divisor)
        return self._part(loss, len(_rows), output, target)

    def _part(self, loss: Tensor, rows: int, output: Any, target: Any) -> _Part:
        """Return the mean ``loss`` of a chunk, weighted by its rows."""
        mean = loss.to(_wide(loss.dtype))
        mean = mean if rows else mean.nan_to_num()
        weight = torch.full_like(mean, rows)
        if self.mean_over is not None:
            return _Part(mean * weight, weight, loss.dtype)
        sizes = tuple([each.numel() for each in find_tensors((output, target), "value")])
        return _Part(mean * weight, weight, loss.dtype, rows, sizes)


def _check_mean_over(value: Any) -> None:
    if value is None or callable(value):
        return
    if not isinstance(value, str):
        raise TypeError(f"mean_over must be 'rows' or a function, not {type(value).__name__}")
    if value != "rows":
        with argument("mean_over"):  # The object may have no repr.
            raise ValueError(f"mean_over must be 'rows' or a function, not {value!r}")


def _as_divisor(value: Any) -> Tensor:
    """Return the result of ``mean_over`` as a tensor of its own without dimensions."""
    if not isinstance(value, (Tensor, Real)):
        raise TypeError(f"the function must return a number, not {type(value).__name__}")
    return torch.as_tensor(value).clone().view(())


def _divided_part(loss: Tensor, divisor: Tensor) -> _Part:
    """Return the mean ``loss`` of a chunk, weighted by the number by which it divides."""
    mean = loss.to(_wide(loss.dtype))
    weight = divisor.to(mean)
    if weight:
        return _Part(mean * weight, weight, loss.dtype)
    # A criterion that divides by 0 returns NaN, which would make all gradients NaN. Many criteria
    # divide by 1 in place of 0: then the loss is the sum of the chunk.
    is_sum = bool(mean.isfinite())
    return _Part(mean if is_sum else torch.zeros_like(mean), weight, loss.dtype, is_sum=is_sum)


def _as_number(loss: Any, reduction: str) -> Tensor:
    """Return ``loss`` without dimensions. Raise an error if it is not one number."""
    if not isinstance(loss, Tensor):
        raise TypeError(f"the criterion must return a tensor, not {type(loss).__name__}")
    if loss.numel() != 1:
        raise ValueError(
            f"the criterion returned a tensor of shape {tuple(loss.shape)}, and the reduction "
            f"{reduction!r} needs one number"
        )
    return loss.view(())


def _count_rows(inputs: Any, kwargs: Mapping[str, Any], dim: int, device_count: int) -> int | None:
    """Return the number of rows of the batch; None if no tensor is split."""
    leaves = InputLeaves()
    dim = as_int("dim", dim)
    with argument("inputs, kwargs or dim"):
        leaves.flatten(inputs, dim, "args")
        leaves.flatten({k: v for k, v in kwargs.items() if k != "target"}, dim, "kwargs")
    # Each replica gets one row of an input with as many rows as there are devices.
    others = [leaf for leaf in leaves.splits if not has_one_row_per_device(leaf, device_count)]
    of_inputs = others or [*leaves.splits]
    leaves.splits.clear()
    with argument("target or dim"):
        leaves.flatten(kwargs["target"], dim, "target")
    split = of_inputs + leaves.splits
    for leaf in split:
        if leaf.extent != split[0].extent:
            raise ValueError(
                f"{format_path(split[0].path)} has {split[0].extent} rows, and "
                f"{format_path(leaf.path)} has {leaf.extent}"
            )
    return split[0].extent if split else None


def _check_batchmean(target: Any, dim: int) -> None:
    """Raise ValueError if rows are not in dimension 0, by whose size ``"batchmean"`` divides."""
    leaves = InputLeaves()
    leaves.flatten(target, dim, "target")
    dims = [leaf.dim % leaf.tensor.dim() for leaf in leaves.splits] or [dim]
    if any(dims):
        raise ValueError(
            "the reduction 'batchmean' divides by the size of dim 0, and the rows are along dim "
            f"{max(dims)}: use the reduction 'sum', and divide the loss"
        )


def _sum_over_targets(criterion: Criterion, output: Any, target: Tensor) -> _Part:
    """Return the sum of cross entropy, and of the class weights of targets that count."""
    losses, weights = losses_and_weights(criterion, output, target)
    dtype = _wide(losses.dtype)
    return _Part(losses.sum(dtype=dtype), weights.sum(dtype=dtype), losses.dtype)


def _mean_of_batch(parts: Sequence[_Part], device: DeviceLike) -> Tensor:
    """Return the mean loss of the batch."""
    _check_sizes([part.sizes for part in parts], [part.rows for part in parts])
    totals, weights = gather([part[:2] for part in parts], device, scalar_warning=False)
    if all(part.is_sum for part in parts):
        weights = torch.ones_like(weights[:1])
    dtype = reduce(torch.promote_types, [part.dtype for part in parts])
    mean: Tensor = (totals.sum() / weights.sum()).to(dtype)
    return mean


def _check_sizes(all_sizes: Sequence[tuple[int, ...]], rows: Sequence[int]) -> None:
    """Raise ValueError if the elements for each row differ between the replicas."""
    has_equal_structure = len({*map(len, all_sizes)}) == 1
    columns = zip(*all_sizes, strict=True) if has_equal_structure else [[*map(sum, all_sizes)]]
    for sizes in columns:
        expected = [sum(sizes) * count for count in rows]
        if len({*sizes}) > 1 and [size * sum(rows) for size in sizes] != expected:
            raise ValueError(
                f"a mean cannot be weighted by rows: an output or target has {[*sizes]} elements "
                f"for {[*rows]} rows in the replicas. Pass mean_over, or let the criterion return "
                "sums, and divide the loss by the number of elements"
            )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
