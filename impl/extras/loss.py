"""DataParallel whose replicas compute the loss, so that no device has the outputs of the batch."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import argument
from .._device import DeviceLike
from ..data_parallel import DataParallel
from ..parallel_apply import get_a_var
from ..scatter_gather import gather

__all__ = ["DataParallelWithLoss"]

_Criterion = Callable[[Any, Any], Tensor]


class DataParallelWithLoss(DataParallel[nn.Module]):
    """A ``DataParallel`` whose replicas compute the loss. A forward returns the loss of the batch.

    Each replica calls ``criterion(output, target)`` with the module's output for its chunk, of any
    type, and with its chunk of the target. The result is the loss of the whole batch on one
    device, apart from rounding, if no part of the loss depends on several rows.

    The attribute ``reduction`` of the criterion says how the losses of the replicas become one:
    ``"none"`` concatenates them, ``"sum"`` adds them, and each other value means their mean. Means
    are weighted by the elements of the first tensor in the target, or in the inputs if the target
    has none, and so by rows. Means of ``nn.CrossEntropyLoss`` and ``nn.NLLLoss`` are weighted by
    the class weights of the targets that are not ``ignore_index``. If another criterion divides by
    such a number, let it return sums, and divide the result.

    Args:
        module: The module.
        criterion: A module or a function. The parameters and buffers of a module are copied to the
            replicas.
        device_ids: See :class:`DataParallel`.
        output_device: The device of the loss.
        dim: The dimension along which inputs and target are split.
        reduction: The reduction of a criterion without this attribute, by default ``"mean"``.
        options: The other arguments of :class:`DataParallel`.

    Raises:
        TypeError: ``module`` is no module, or ``criterion`` cannot be called.
        ValueError: ``reduction`` is another text.

    Note:
        The keys of ``state_dict`` begin with ``module.module.``: save that of the module itself.
        :meth:`map` yields each mean in a pair with its weight.
    """

    def __init__(
        self,
        module: nn.Module,
        criterion: _Criterion,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        *,
        reduction: str = "mean",
        **options: Any,
    ) -> None:
        with argument("module"):
            if not isinstance(module, nn.Module):
                raise TypeError(f"module must be a Module, not {type(module).__name__}")
        with argument("criterion"):
            if not callable(criterion):
                raise TypeError(f"criterion must be callable, not {type(criterion).__name__}")
        with argument("reduction"):
            if reduction not in ("mean", "sum", "none"):
                raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
        options = {"scalar_warning": False, **options}
        with argument("criterion"):
            module = _ModuleWithLoss(module, criterion, reduction)
        super().__init__(module, device_ids, output_device, dim, **options)

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
            ValueError: The criterion has not returned one number, and the reduction is not
                ``"none"``.
            Exception: See :meth:`DataParallel.forward`.
        """
        return self._reduce(super().forward(*inputs, target=target, **kwargs))

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        """Concatenate the losses. Numbers become a vector. A subclass may override this step."""
        dim = self.dim if self.module.reduction == "none" else 0
        return gather(outputs, output_device, dim=dim, scalar_warning=self.scalar_warning)

    def _reduce(self, result: Any) -> Tensor:
        """Return the loss of the batch. ``result`` has the gathered outputs of the replicas."""
        loss: Tensor
        if self.module.reduction == "none":
            loss = result
        elif self.module.reduction == "sum":
            loss = result.sum()
        else:
            losses, weights = result
            losses = losses.masked_fill(weights == 0, 0)  # The mean of an empty chunk is NaN.
            loss = (losses * (weights / weights.sum())).sum().to(losses.dtype)
        return loss


class _ModuleWithLoss(nn.Module):
    """The module of a replica. It returns losses; or, for a mean, the pair of mean and weight."""

    def __init__(self, module: nn.Module, criterion: _Criterion, reduction: str) -> None:
        super().__init__()
        self.module, self.criterion = module, criterion
        self.reduction: str = getattr(criterion, "reduction", reduction)

    def forward(self, *inputs: Any, target: Any, **kwargs: Any) -> Any:
        output = self.module(*inputs, **kwargs)
        if type(self.criterion) in (nn.CrossEntropyLoss, nn.NLLLoss) and self._has_classes(target):
            return self._mean_over_classes(output, target)
        loss = self.criterion(output, target)
        if self.reduction == "none":
            return loss
        if loss.numel() != 1:
            raise ValueError(
                f"the criterion returned a tensor of shape {tuple(loss.shape)}, and the reduction "
                f"{self.reduction!r} needs one number"
            )
        loss = loss.view(())
        if self.reduction == "sum":
            return loss
        rows = get_a_var((target, inputs, kwargs))
        return loss, _weight(loss, 1 if rows is None else rows.numel())

    def _has_classes(self, target: Any) -> bool:
        is_index = isinstance(target, Tensor) and not target.is_floating_point()
        return is_index and self.reduction == "mean"

    def _mean_over_classes(self, output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss and its weight, without NaN if all targets are ignored."""
        criterion: Any = copy.copy(self.criterion)
        criterion.reduction = "none"
        losses = criterion(output, target)
        counted = target != criterion.ignore_index
        if criterion.weight is None:
            weights = counted
        else:
            weights = criterion.weight[target.where(counted, 0)] * counted
        weight = weights.sum(dtype=_wide(losses))
        total = losses.sum(dtype=_wide(losses))
        return (total / weight.where(weight != 0, 1)).to(losses.dtype), weight


def _weight(loss: Tensor, count: int) -> Tensor:
    return torch.full((), count, dtype=_wide(loss), device=loss.device)


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
