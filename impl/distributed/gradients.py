"""Gradients of parameters, averaged over the ranks while backward goes on.

DistributedDataParallel does it, bucket by bucket. It does not see the module: it is given the
tensors, and is told at the beginning of a backward that all of them are going to be reached.
That holds, since every output of the ranks leads to every parameter (``autograd.Exit``), some
of which no gradient arrives at.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from .._compat import is_needed_in_backward
from .process_group import Ranks

__all__ = ["Averages", "averages_of"]


class _Reached(Function):
    """A tensor without a value whose graph leads to given leaves."""

    @staticmethod
    def forward(ctx: Any, *leaves: Tensor) -> Tensor:
        """Give the tensor."""
        return leaves[0].new_zeros(())


class _Tensors(nn.Module):
    """The parameters and buffers of a module, without the module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        tensors = _named(module)
        for name, tensor in tensors.items():
            key = name.replace(".", "/")
            if tensor.requires_grad or isinstance(tensor, nn.Parameter):
                # `register_parameter` refuses a buffer that requires a gradient.
                self._parameters[key] = tensor  # type: ignore[assignment] # of whatever class
            else:
                self.register_buffer(key, tensor)
        self.trained = [tensor for tensor in tensors.values() if tensor.requires_grad]
        # Where nothing is unused DistributedDataParallel warns that it need not have looked.
        like = next(iter(self.trained), torch.zeros(0))
        self.unused = nn.Parameter(like.new_zeros(0))

    def forward(self) -> Tensor:
        """Give a tensor whose graph leads to all that gradients are wanted for."""
        out: Tensor = _Reached.apply(*self.trained)  # type: ignore[no-untyped-call] # torch's
        return out


class Averages:
    """The averaging of the gradients of one module's parameters.

    What rank 0's parameters and buffers hold is written to those of all ranks now.

    Args:
        module: The module, alike on all ranks.
        ranks: The ranks.
        options: More arguments of DistributedDataParallel.

    Attributes:
        trained: The tensors that require gradients.
        about: What holds as long as this can be used.

    Raises:
        RuntimeError: Parameters differ between ranks in number or shape.
    """

    def __init__(self, module: nn.Module, ranks: Ranks, options: Mapping[str, Any]) -> None:
        _check_alike(module, ranks)
        tensors = _Tensors(module)
        self.trained = tensors.trained
        self.about = about(module, ranks, options)
        self._engine = _engine(tensors, ranks, options) if self.trained else None

    def begin(self, probe: Tensor, is_summed: bool) -> None:
        """Prepare for the backward that is going on.

        Args:
            probe: A leaf that nobody else knows: only a backward to all leaves reaches it.
            is_summed: Whether to average the gradients; else each rank keeps its own.

        Raises:
            RuntimeError: This backward is to be differentiated itself; or it is only to reach
                certain tensors, and parameters are among them.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(_TWICE)
        if not is_needed_in_backward(probe):
            if any(map(is_needed_in_backward, self.trained)):
                raise RuntimeError(_SINGLED_OUT)
            return
        # Of several calls in one backward each comes here before any parameter is reached.
        if is_summed and self._engine is not None:
            with torch.enable_grad():
                self._engine()


_TWICE = (
    "impl.distributed.DataParallel cannot be differentiated twice (create_graph=True): "
    "gradients of gradients would have to cross processes"
)
_SINGLED_OUT = (
    "gradients of parameters inside impl.distributed.DataParallel are summed over the ranks by "
    "loss.backward() only, not by torch.autograd.grad or backward(inputs=...)"
)


def _check_alike(module: nn.Module, ranks: Ranks) -> None:
    """Refuse modules that differ; DistributedDataParallel lets rank 0 wait for the others.

    Sparse gradients it takes only from modules that it knows, and not with a hook.
    """
    for name, each in module.named_modules():
        if getattr(each, "sparse", False) is True:
            raise NotImplementedError(
                f"gradients of {name or 'the module'} are sparse: over processes take sparse=False"
            )
    described = {name: _words(tensor) for name, tensor in _named(module).items()}
    first, *others = ranks.exchange(described)
    for rank, other in enumerate(others, 1):
        for name in [*first, *other]:
            one, two = first.get(name, "missing"), other.get(name, "missing")
            if one != two:
                raise RuntimeError(
                    f"rank {rank} has another module than rank 0: {name} is {two}, not {one}"
                )


def _words(tensor: Tensor) -> str:
    trained = ", requires a gradient" if tensor.requires_grad else ""
    return f"{tuple(tensor.shape)} of {tensor.dtype}{trained}"


def _named(module: nn.Module) -> dict[str, Tensor]:
    return dict([*module.named_parameters(), *module.named_buffers()])


def _engine(tensors: nn.Module, ranks: Ranks, options: Mapping[str, Any]) -> nn.Module:
    engine = DistributedDataParallel(
        tensors,
        process_group=ranks.group,
        find_unused_parameters=True,  # Which no rank has a gradient for, keep None.
        **options,
    )
    engine.register_comm_hook(ranks, _average)
    return engine


def _average(ranks: Ranks, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined] # it is there at run time
    return ranks.begin_sum(bucket.buffer().div_(ranks.size))


def about(module: nn.Module, ranks: Ranks, options: Mapping[str, Any]) -> Any:
    """List what must not change under DistributedDataParallel."""
    tensors = [(id(each), each.requires_grad, each.device, each.dtype) for each in _both(module)]
    return ranks, tensors, dict(options)


def _both(module: nn.Module) -> list[Tensor]:
    moving = [buffer for buffer in module.buffers() if buffer.requires_grad]
    return [*module.parameters(), *moving]


#: One of a module: of two, both would average the same gradients.
_KNOWN: weakref.WeakKeyDictionary[nn.Module, Averages] = weakref.WeakKeyDictionary()


def averages_of(module: nn.Module, ranks: Ranks, options: Mapping[str, Any]) -> Averages:
    """Give the averaging of the gradients of ``module``, a new one where it has changed.

    Args:
        module: As for :class:`Averages`.
        ranks: As for :class:`Averages`.
        options: As for :class:`Averages`.

    Raises:
        RuntimeError: As from :class:`Averages`.
    """
    known = _KNOWN.get(module)
    if known is None or known.about != about(module, ranks, options):
        _KNOWN.pop(module, None)  # Its hooks go first.
        known = _KNOWN[module] = Averages(module, ranks, options)
    return known
