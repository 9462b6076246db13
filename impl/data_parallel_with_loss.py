"""DataParallel whose replicas compute the loss, so that no device has the outputs of the batch."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ._arguments import argument
from ._compat import exclude_from_compilation
from ._device import DeviceLike
from ._pytree import InputLeaves, remove_markers
from ._replica import ReplicaLeaves, has_compiled_code
from ._threads import module_group, without_autocast
from .batch_norm import SyncBatchNorm
from .data_parallel import DataParallel
from .parallel_apply import get_a_var
from .replicate import replicate_with
from .scatter_gather import gather

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

    @exclude_from_compilation
    def backward(self, *inputs: Any, target: Any, **kwargs: Any) -> Tensor:
        """Compute the loss of one batch, and add its gradients to those of the parameters.

        Loss and gradients are those of a forward and ``loss.backward()``, apart from rounding. But
        each replica computes its backward in the thread of its forward. PyTorch computes the
        backward of all CPU replicas in one thread, so this is faster for replicas on the CPU.

        One thread computes backward with ``in_turn``, for compiled replicas, and if a subclass
        overrides :meth:`parallel_apply`. This method calls the wrapper, and ``backward`` of the
        loss, if a tensor in the arguments requires grad, the module has a :class:`SyncBatchNorm`
        or a parameter that was created in inference mode, a subclass overrides :meth:`forward` or
        :meth:`replicate`, or there is one device. Backward runs outside of the caller's region of
        autocast.

        Args:
            inputs: See :meth:`forward`.
            target: See :meth:`forward`.
            kwargs: See :meth:`forward`.

        Returns:
            The loss, without gradients.

        Raises:
            ValueError: The reduction is ``"none"``.
            RuntimeError: Grad mode is off; no loss requires grad; PyTorch cannot differentiate a
                part of the graph that two replicas share, such as the history of a tensor that is
                no member of the module; or a replica has changed a parameter in place, as
                ``nn.Embedding`` with ``max_norm`` does, and there are several replicas on its
                device.
            Exception: See :meth:`forward`. With several devices, no gradient of a replica's
                parameters is then passed to the module.

        Note:
            With several devices, hooks of the wrapper are not called. Replicas on the first device
            share the memory of the parameters. Changes of a parameter through ``.data`` are not
            detected. Replicas on the CPU draw from one random generator, also where a checkpoint
            computes again: use ``in_turn`` for dropout in ``torch.utils.checkpoint``.
        """
        if self.module.reduction == "none":
            raise ValueError("backward() needs one number, and the reduction is 'none'")
        if not torch.is_grad_enabled():
            raise RuntimeError("backward() needs grad mode, which is off")
        arguments = {**kwargs, "target": target}
        if len(self.device_ids) < 2 or self._needs_one_backward((inputs, arguments)):
            loss: Tensor = self(*inputs, **arguments)
            _differentiate(loss)
            return loss.detach()
        result: Tensor = self._compute_on_several(inputs, arguments, _StepsOfBackward(self))
        return result

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        """Concatenate the losses. Numbers become a vector. A subclass may override this step."""
        dim = self.dim if self.module.reduction == "none" else 0
        return gather(outputs, output_device, dim=dim, scalar_warning=self.scalar_warning)

    def _needs_one_backward(self, arguments: Any) -> bool:
        """Return whether a backward of the gathered loss is needed."""
        leaves = InputLeaves()
        leaves.flatten(remove_markers(arguments), None, "argument")
        return (
            _overrides(self, "forward", "replicate")
            or any(leaf.tensor.requires_grad for leaf in leaves.copied)
            or any(parameter.is_inference() for parameter in self.module.parameters())
            or any(isinstance(each, SyncBatchNorm) for each in self.module.modules())
        )

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


class _StepsOfBackward:
    """The steps of one call of :meth:`DataParallelWithLoss.backward` on several devices."""

    def __init__(self, wrapper: DataParallelWithLoss) -> None:
        self.wrapper, self.leaves = wrapper, ReplicaLeaves()

    def replicate(self, module: nn.Module, device_ids: Sequence[DeviceLike]) -> list[nn.Module]:
        """Return replicas whose parameters are leaves."""
        copies = self.wrapper._frozen_copies()
        copier = None if copies is None else partial(copies.copy, module)
        return replicate_with(
            copier, module, device_ids, detach=False, with_parameters=True, leaves=self.leaves
        )

    def parallel_apply(
        self, replicas: Sequence[nn.Module], inputs: Sequence[Any], kwargs: Any
    ) -> Tensor:
        """Run forward and backward of each replica; return the loss of the batch."""
        wrapper = self.wrapper
        is_override = _overrides(wrapper, "parallel_apply")
        if wrapper.in_turn or is_override or any(map(has_compiled_code, replicas)):
            outputs = wrapper.parallel_apply(replicas, inputs, kwargs)
            self.leaves.check_shared(wrapper.module)
            total = wrapper._reduce(wrapper.gather(outputs, wrapper.output_device))
            _differentiate(total)
        else:
            exchange = self.exchange  # Each access would make another object.
            for replica in replicas:
                replica.__dict__["exchange"] = exchange
            total = wrapper.parallel_apply(replicas, inputs, kwargs)[0]
        self.leaves.pass_gradients()
        return total.detach()

    def exchange(self, outputs: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
        """Return, for each replica, the loss of the batch, and its gradient for that replica."""
        wrapper = self.wrapper
        self.leaves.check_shared(wrapper.module)
        if not any(_loss(output).requires_grad for output in outputs):
            raise RuntimeError("no loss requires grad: all parameters are frozen or unused")
        ends = [_loss(output).detach().requires_grad_() for output in outputs]
        numbers = [
            (end, *output[1:]) if isinstance(output, tuple) else end
            for end, output in zip(ends, outputs, strict=True)
        ]
        total = wrapper._reduce(wrapper.gather(numbers, wrapper.output_device))
        return [(total, factor) for factor in torch.autograd.grad(total, ends)]

    def gather(self, outputs: Tensor, _: DeviceLike) -> Tensor:
        """Return the loss, which is on the output device."""
        return outputs


def _overrides(wrapper: DataParallelWithLoss, *names: str) -> bool:
    """Return whether a subclass, or the wrapper itself, overrides one of the methods ``names``."""
    return any(
        getattr(type(wrapper), name) is not getattr(DataParallelWithLoss, name)
        or name in wrapper.__dict__
        for name in names
    )


def _loss(output: Any) -> Tensor:
    """Return the loss in the output of a replica."""
    loss: Tensor = output[0] if isinstance(output, tuple) else output
    return loss


def _differentiate(loss: Tensor, factor: Tensor | None = None) -> None:
    with without_autocast():
        torch.autograd.backward(loss, factor)


class _ModuleWithLoss(nn.Module):
    """The module of a replica. It returns losses; or, for a mean, the pair of mean and weight.

    With :attr:`exchange`, it computes its backward, and returns the loss of the batch.
    """

    #: A function for :meth:`ModuleGroup.exchange`, which the replicas of one call share.
    exchange: Callable[[Sequence[Any]], Sequence[Any]] | None = None

    def __init__(self, module: nn.Module, criterion: _Criterion, reduction: str) -> None:
        super().__init__()
        self.module, self.criterion = module, criterion
        self.reduction: str = getattr(criterion, "reduction", reduction)

    def forward(self, *inputs: Any, target: Any, **kwargs: Any) -> Any:
        output = self._compute(*inputs, target=target, **kwargs)
        if self.exchange is None:
            return output
        found = module_group()
        assert found is not None
        group, index = found
        total, factor = group.exchange(index, self, output, self.exchange)
        if _loss(output).requires_grad:
            _differentiate(_loss(output), factor)
        return total

    @property
    def identity(self) -> Any:
        """The same object in all replicas of one call."""
        return self.exchange

    def _compute(self, *inputs: Any, target: Any, **kwargs: Any) -> Any:
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
