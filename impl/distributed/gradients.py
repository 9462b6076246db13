"""Gradients of parameters, averaged over the ranks during backward.

A DistributedDataParallel (DDP) averages the gradients, bucket by bucket. This DDP does not wrap
the module. It wraps a ``_TensorHolder``, a module that has only the module's parameters and
buffers. ``GradientReducer`` calls the DDP at the start of each backward. The DDP then waits until
backward has reached every trainable parameter. ``autograd.ExitParallelRegion`` therefore connects
every output with every parameter, also with parameters that get no gradient.
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

from .._copies import has_own_operators, without_repeats
from .._torch_private import (
    call_after_backward,
    call_with_inference_mode,
    has_accumulate_hooks,
    is_needed_in_backward,
)
from .process_group import Communicator
from .serialization import describe

#: For each size of an element, in bytes: a dtype that Gloo sends. It refuses float8 and int16.
_SENT_AS = {1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64}


class _ConnectLeaves(Function):
    """A Function that returns a dummy scalar whose graph leads to the given leaves."""

    @staticmethod
    def forward(ctx: Any, *leaves: Tensor) -> Tensor:
        return leaves[0].new_zeros(())


class _TensorHolder(nn.Module):
    """A module that has the parameters and buffers of another module, but not its forward."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            key = name.replace(".", "/")
            sent = tensor if tensor.requires_grad else _as_sent(tensor)
            if tensor.requires_grad or isinstance(tensor, nn.Parameter):
                # DDP reduces only the tensors in `_parameters`. `register_parameter` would refuse
                # a buffer that requires a gradient, because it is not an nn.Parameter.
                self._parameters[key] = sent  # type: ignore[assignment] # not an nn.Parameter
            elif tensor.layout is torch.strided:  # As in `sync_buffers`.
                self.register_buffer(key, sent)
        self.trainable = [tensor for tensor in tensors.values() if tensor.requires_grad]
        # An unused parameter: if all parameters were used, DistributedDataParallel would warn that
        # `find_unused_parameters` is not needed.
        device = next((tensor.device for tensor in tensors.values()), None)
        like = next(iter(self.trainable), torch.zeros(0, device=device))
        self.unused = nn.Parameter(like.new_zeros(0))

    def forward(self) -> Tensor:
        """Return a dummy scalar whose graph leads to all trainable tensors."""
        out: Tensor = _ConnectLeaves.apply(*self.trainable)  # type: ignore[no-untyped-call] # torch's
        return out


def _as_sent(tensor: Tensor) -> Tensor:
    """Return a view of a tensor that requires no gradient. DDP's constructor writes to it.

    The view has a dtype that Gloo sends, and no element twice, as an expanded tensor has.
    """
    if tensor.layout is not torch.strided or has_own_operators(type(tensor)):
        return tensor
    tensor = without_repeats(tensor)
    size = tensor.dtype.itemsize
    is_sent = tensor.is_complex() or (tensor.is_floating_point() and size > 1)
    return tensor if is_sent else tensor.view(_SENT_AS[size])


class GradientReducer:
    """The averages of the gradients of one module over the ranks.

    The constructor sets the parameters and buffers of all ranks to the values on rank 0.

    Attributes:
        trainable: The tensors that require gradients, by name.

    Raises:
        RuntimeError: The ranks' parameters or buffers differ in name, shape or dtype.
        NotImplementedError: A submodule has sparse gradients.
    """

    def __init__(
        self, module: nn.Module, communicator: Communicator, options: Mapping[str, Any]
    ) -> None:
        _check_no_sparse_gradients(module)
        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        _check_same_tensors(tensors, communicator)
        self.trainable = {name: each for name, each in tensors.items() if each.requires_grad}
        #: The all-reduces of the running backward, one for each bucket.
        self._futures: list[Future[Tensor]] = []
        self._ddp: nn.Module | None = None
        if tensors:
            # This broadcasts the values of rank 0, also if nothing requires a gradient.
            ddp = _build_ddp(_TensorHolder(tensors), communicator, options, self._futures)
            self._ddp = ddp if self.trainable else None

    def prepare_for_backward(self, sentinel: Tensor, require_grad_sync: bool) -> None:
        """Prepare DistributedDataParallel for the running backward.

        ``sentinel`` is a leaf that belongs to one call. Backward reaches it only if it computes
        the gradients of all leaves. Without ``require_grad_sync`` each rank keeps its gradients.

        Raises:
            RuntimeError: The backward has ``create_graph=True``; or it computes only the gradients
                of selected tensors, and some of these are parameters.
            NotImplementedError: As for :meth:`check_hooks`.
        """
        self.check_hooks()
        if torch.is_grad_enabled():
            raise RuntimeError(
                "impl.distributed.DataParallel does not support double backward "
                "(create_graph=True): second-order gradients would have to cross processes"
            )
        if not is_needed_in_backward(sentinel):
            if any(map(is_needed_in_backward, self.trainable.values())):
                raise RuntimeError(
                    "gradients of parameters inside impl.distributed.DataParallel are summed over "
                    "the ranks by loss.backward() only, not by torch.autograd.grad or "
                    "backward(inputs=...)"
                )
            return
        # If one backward covers several calls, this code runs once for each call before backward
        # reaches a parameter.
        if require_grad_sync and self._ddp is not None:
            self._futures.clear()  # A backward that failed has left its futures.
            with torch.enable_grad():
                self._ddp()
            # Callbacks run in the order in which they are queued. The callback of
            # DistributedDataParallel runs a collective whose error names no rank.
            call_after_backward(self._wait_for_buckets)

    def check_hooks(self) -> None:
        """Raise NotImplementedError if a hook of a tensor would run before the ranks' average."""
        for name, tensor in self.trainable.items():
            if has_accumulate_hooks(tensor):
                raise NotImplementedError(
                    f"{name} has a hook of register_post_accumulate_grad_hook, which would get "
                    "the gradient of this rank alone: call the optimizer after backward"
                )

    def _wait_for_buckets(self) -> None:
        """Wait for the all-reduces of all buckets. Raise the error of one that failed."""
        futures = [*self._futures]
        self._futures.clear()
        for future in futures:
            future.wait()


def _check_no_sparse_gradients(module: nn.Module) -> None:
    # For sparse gradients DistributedDataParallel needs the module itself, but impl passes a
    # `_TensorHolder`. DistributedDataParallel does not apply a communication hook to sparse
    # gradients.
    for name, submodule in module.named_modules():
        if getattr(submodule, "sparse", False) is True:
            raise NotImplementedError(
                f"gradients of {name or 'the module'} are sparse, which "
                "impl.distributed.DataParallel does not support: use sparse=False"
            )


def _check_same_tensors(tensors: Mapping[str, Tensor], communicator: Communicator) -> None:
    """Check that all ranks have the same module. Otherwise DistributedDataParallel would hang."""
    descriptions = {
        name: describe(tensor) + (", requires a gradient" if tensor.requires_grad else "")
        for name, tensor in tensors.items()
    }
    first, *others = communicator.all_gather_object(descriptions)
    for rank, other in enumerate(others, 1):
        for name in [*first, *other]:
            expected, found = first.get(name, "missing"), other.get(name, "missing")
            if found != expected:
                raise RuntimeError(
                    f"the module of rank {rank} differs from that of rank 0: "
                    f"{name} is {found}, not {expected}"
                )


def _build_ddp(
    holder: nn.Module,
    communicator: Communicator,
    options: Mapping[str, Any],
    futures: list[Future[Tensor]],
) -> nn.Module:
    # The constructor runs collectives of its own. It raises errors about the module on all ranks.
    with communicator.name_missing_ranks("constructor"):
        ddp = DistributedDataParallel(
            holder,
            process_group=communicator.group,
            find_unused_parameters=True,  # A parameter that no rank uses keeps grad None.
            **options,
        )
    ddp.register_comm_hook((communicator, futures), _average_bucket)
    # The constructor has broadcast the buffers. Later calls of `ddp` run in backward, where a
    # broadcast would change buffers that the graph has saved. In PyTorch 2.11 it increases their
    # version counters.
    ddp.broadcast_buffers = False
    return ddp


def _average_bucket(
    state: tuple[Communicator, list[Future[Tensor]]],
    bucket: dist.GradBucket,  # type: ignore[name-defined] # missing in the stubs
) -> Future[Tensor]:
    communicator, futures = state
    future = communicator.all_reduce_async(bucket.buffer().div_(communicator.size))
    futures.append(future)
    return future


#: For each module: its only reducer, and the values on which it depends. Two reducers would
#: average the same gradients twice.
_REDUCERS: weakref.WeakKeyDictionary[nn.Module, tuple[Any, GradientReducer]] = (
    weakref.WeakKeyDictionary()
)


def get_reducer(
    module: nn.Module, communicator: Communicator, options: Mapping[str, Any]
) -> GradientReducer:
    """Return the kept reducer of ``module``, or a new one if the module has changed.

    Raise the errors of :class:`GradientReducer`, and of its method ``check_hooks``.
    """
    buffers = [buffer for buffer in module.buffers() if buffer.requires_grad]
    tensors = [*module.parameters(), *buffers]
    states = [(id(each), each.requires_grad, each.device, each.dtype) for each in tensors]
    state = communicator, states, dict(options)
    kept_state, reducer = _REDUCERS.get(module, (None, None))
    if reducer is None or kept_state != state:
        # Free the old reducer first. This removes its hooks on the parameters.
        _REDUCERS.pop(module, None)
        del reducer
        # Backward passes could not write to its tensors if they were made in inference mode.
        reducer = call_with_inference_mode(
            False, lambda: GradientReducer(module, communicator, options)
        )
        _REDUCERS[module] = state, reducer
    reducer.check_hooks()
    return reducer
