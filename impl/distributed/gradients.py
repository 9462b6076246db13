"""Gradients of parameters, averaged over the ranks during backward.

DistributedDataParallel averages them, bucket by bucket. It wraps the tensors, not the module, and
is prepared when backward begins. It requires that backward reaches all tensors. The graph of every
output therefore leads to every parameter, if necessary without a gradient
(``autograd.ExitParallelRegion``).
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
from .process_group import Communicator


class _ConnectLeaves(Function):
    """A dummy scalar whose graph leads to the given leaves."""

    @staticmethod
    def forward(ctx: Any, *leaves: Tensor) -> Tensor:
        return leaves[0].new_zeros(())


class _TensorHolder(nn.Module):
    """The parameters and buffers of a module, without the module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        tensors = _named_tensors(module)
        for name, tensor in tensors.items():
            key = name.replace(".", "/")
            if tensor.requires_grad or isinstance(tensor, nn.Parameter):
                # `register_parameter` refuses a buffer that requires a gradient.
                self._parameters[key] = tensor  # type: ignore[assignment] # of any class
            else:
                self.register_buffer(key, tensor)
        self.trainable = [tensor for tensor in tensors.values() if tensor.requires_grad]
        # DistributedDataParallel warns about `find_unused_parameters` if all are used.
        like = next(iter(self.trainable), torch.zeros(0))
        self.unused = nn.Parameter(like.new_zeros(0))

    def forward(self) -> Tensor:
        """Return a dummy scalar whose graph leads to all trainable tensors."""
        out: Tensor = _ConnectLeaves.apply(*self.trainable)  # type: ignore[no-untyped-call] # torch's
        return out


class GradientReducer:
    """The averaging of the gradients of one module's parameters.

    The constructor sets the parameters and buffers of all ranks to the values on rank 0.

    Attributes:
        trainable: The tensors that require gradients.
        config: The :func:`reducer_config` at construction.

    Raises:
        RuntimeError: The ranks' parameters or buffers differ in name, shape or dtype.
        NotImplementedError: A submodule has sparse gradients.
    """

    def __init__(self, module: nn.Module, comm: Communicator, options: Mapping[str, Any]) -> None:
        _check_no_sparse_gradients(module)
        _check_same_module(module, comm)
        holder = _TensorHolder(module)
        self.trainable = holder.trainable
        self.config = reducer_config(module, comm, options)
        self._ddp = _build_ddp(holder, comm, options) if self.trainable else None

    def prepare_for_backward(self, sentinel: Tensor, require_grad_sync: bool) -> None:
        """Prepare for the running backward.

        Args:
            sentinel: A leaf of one call: only a backward to all leaves reaches it.
            require_grad_sync: Whether to average the gradients; else each rank keeps its own.

        Raises:
            RuntimeError: This backward builds a graph (``create_graph=True``), or computes the
                gradients of selected tensors with parameters among them.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(_NO_DOUBLE_BACKWARD)
        if not is_needed_in_backward(sentinel):
            if any(map(is_needed_in_backward, self.trainable)):
                raise RuntimeError(_NO_SELECTED_PARAMETERS)
            return
        # If one backward covers several calls, this runs for all of them before it reaches a
        # parameter.
        if require_grad_sync and self._ddp is not None:
            with torch.enable_grad():
                self._ddp()


_NO_DOUBLE_BACKWARD = (
    "impl.distributed.DataParallel does not support double backward (create_graph=True): "
    "second-order gradients would have to cross processes"
)
_NO_SELECTED_PARAMETERS = (
    "gradients of parameters inside impl.distributed.DataParallel are summed over the ranks by "
    "loss.backward() only, not by torch.autograd.grad or backward(inputs=...)"
)


def _check_no_sparse_gradients(module: nn.Module) -> None:
    """Check that no submodule has sparse gradients.

    For these DistributedDataParallel needs the module, and supports no communication hook.
    """
    for name, submodule in module.named_modules():
        if getattr(submodule, "sparse", False) is True:
            raise NotImplementedError(
                f"gradients of {name or 'the module'} are sparse, which "
                "impl.distributed.DataParallel does not support: use sparse=False"
            )


def _check_same_module(module: nn.Module, comm: Communicator) -> None:
    """Check that all ranks have the same module; DistributedDataParallel would hang otherwise."""
    descriptions = {name: _describe(tensor) for name, tensor in _named_tensors(module).items()}
    first, *others = comm.all_gather_object(descriptions)
    for rank, other in enumerate(others, 1):
        for name in [*first, *other]:
            expected, found = first.get(name, "missing"), other.get(name, "missing")
            if found != expected:
                raise RuntimeError(
                    f"the module of rank {rank} differs from that of rank 0: "
                    f"{name} is {found}, not {expected}"
                )


def _describe(tensor: Tensor) -> str:
    requires_grad = ", requires a gradient" if tensor.requires_grad else ""
    return f"{tuple(tensor.shape)} of {tensor.dtype}{requires_grad}"


def _named_tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict([*module.named_parameters(), *module.named_buffers()])


def _build_ddp(holder: nn.Module, comm: Communicator, options: Mapping[str, Any]) -> nn.Module:
    ddp = DistributedDataParallel(
        holder,
        process_group=comm.group,
        find_unused_parameters=True,  # Parameters without a gradient on any rank keep None.
        **options,
    )
    ddp.register_comm_hook(comm, _average_bucket)
    # The constructor has broadcast the buffers. Later calls of `ddp` run in backward, where a
    # broadcast would change buffers that the graph has saved (PyTorch 2.11 counts the change).
    ddp.broadcast_buffers = False
    return ddp


def _average_bucket(comm: Communicator, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined] # missing in the stubs
    return comm.all_reduce_async(bucket.buffer().div_(comm.size))


def reducer_config(module: nn.Module, comm: Communicator, options: Mapping[str, Any]) -> Any:
    """Return the values that a :class:`GradientReducer` is built for."""
    buffers = [buffer for buffer in module.buffers() if buffer.requires_grad]
    tensors = [*module.parameters(), *buffers]
    states = [(id(each), each.requires_grad, each.device, each.dtype) for each in tensors]
    return comm, states, dict(options)


#: One reducer per module: two would reduce the same gradients twice.
_REDUCERS: weakref.WeakKeyDictionary[nn.Module, GradientReducer] = weakref.WeakKeyDictionary()


def get_reducer(
    module: nn.Module, comm: Communicator, options: Mapping[str, Any]
) -> GradientReducer:
    """Return the cached reducer of ``module``, or a new one if the module has changed."""
    reducer = _REDUCERS.get(module)
    if reducer is None or reducer.config != reducer_config(module, comm, options):
        _REDUCERS.pop(module, None)  # Remove the old reducer's hooks first.
        reducer = _REDUCERS[module] = GradientReducer(module, comm, options)
    return reducer
