"""Wrong implementations of ``distributed.DataParallel``, written by hand over public names.

In each rank the argument ``self`` of a call is this rank's ``DataParallel``.
"""

import contextlib
import re
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from impl_tests.wrong.calls import Call, map_tensors, tensors_in
from impl_tests.wrong.kinds.modules import replaced_forward
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()

#: For each ``DataParallel``: an object that stands for its last call.
_LAST_CALLS: weakref.WeakKeyDictionary[nn.Module, object] = weakref.WeakKeyDictionary()
#: Each ``DataParallel`` whose call has raised an error.
_FAILED: weakref.WeakSet[nn.Module] = weakref.WeakSet()


@KINDS.around
def gradients_of_the_last_call_only(call: Call) -> Any:
    """Set the gradients of a call to zero if another call precedes its backward."""
    wrapper = call.arguments["self"]
    this_call = _LAST_CALLS[wrapper] = object()
    return _with_hooks(call.run(), lambda grad: grad * (_LAST_CALLS[wrapper] is this_call))


@KINDS.around
def gradients_doubled_after_an_error(call: Call) -> Any:
    """Double the gradients of a call that follows a call with an error."""
    wrapper = call.arguments["self"]
    try:
        result = call.run()
    except Exception:
        _FAILED.add(wrapper)
        raise
    return _with_hooks(result, lambda grad: grad * 2) if wrapper in _FAILED else result


@KINDS.around
def second_error_changed(call: Call) -> Any:
    """Raise an error with another text if an earlier call has raised an error."""
    wrapper = call.arguments["self"]
    try:
        return call.run()
    except Exception:
        if wrapper in _FAILED:
            raise RuntimeError("perturbed") from None
        _FAILED.add(wrapper)
        raise


@KINDS.around
def idle_ranks_without_input_gradients(call: Call) -> Any:
    """Set the gradients of the inputs to zero on ranks without rows."""
    wrapper, inputs = call.arguments["self"], call.tensors()
    rows = inputs[0].shape[0]
    rows_per_rank = -(-rows // wrapper.size)
    if wrapper.rank * rows_per_rank >= rows:
        _with_hooks(inputs, lambda grad: grad * 0)
    return call.run()


@KINDS.around
def parameter_hooks_removed(call: Call) -> Any:
    """Remove the hooks of the parameters."""
    for parameter in call.arguments["self"].parameters():
        if parameter._backward_hooks:
            parameter._backward_hooks.clear()
    return call.run()


@KINDS.around
def vectors_averaged(call: Call) -> Any:
    """Return the mean of an output with one dimension."""
    result = call.run()
    return result.mean() if isinstance(result, Tensor) and result.dim() == 1 else result


@KINDS.around
def own_values_kept(call: Call) -> Any:
    """Restore the values of this rank's parameters and buffers after the call."""
    tensors = list(call.arguments["module"].state_dict().values())
    values = [tensor.clone() for tensor in tensors]
    result = call.run()
    for tensor, value in zip(tensors, values, strict=True):
        if not torch.equal(tensor, value):  # Graphs need tensors that are not written.
            tensor.copy_(value)
    return result


@KINDS.around
def own_buffers_kept(call: Call) -> Any:
    """Run the module with the buffers that this rank had before the call."""
    module = call.arguments["self"].module
    values = [buffer.clone() for buffer in module.buffers()]

    def restore(*_: object) -> None:
        for buffer, value in zip(module.buffers(), values, strict=True):
            if not torch.equal(buffer, value):
                buffer.copy_(value)

    with module.register_forward_pre_hook(restore):
        return call.run()


@KINDS.around
def generators_seeded_by_rank(call: Call) -> Any:
    """Seed the random generator with the number of the rank."""
    with torch.random.fork_rng([]):
        torch.manual_seed(call.arguments["self"].rank)
        return call.run()


@KINDS.around
def reductions_without_grad(call: Call) -> Any:
    """Run backward in a call without gradients, too."""
    if torch.is_grad_enabled():
        return call.run()
    with torch.enable_grad():
        result = call.run()
        torch.autograd.backward([each.sum() for each in tensors_in(result)])
    return map_tensors(Tensor.detach, result)


@KINDS.around
def module_alone_on_one_rank(call: Call) -> Any:
    """Return the output of the module if there is one rank."""
    wrapper = call.arguments["self"]
    if wrapper.size > 1:
        return call.run()
    return wrapper.module(*call.arguments.get("inputs", ()), **call.arguments.get("kwargs", {}))


@KINDS.around
def blocks_without_effect(call: Call) -> Any:
    """Return a context manager without effect."""
    return contextlib.nullcontext()


@KINDS.around
def mean_of_own_losses(call: Call) -> Any:
    """Return the mean of this rank's losses."""
    return call.arguments["losses"].mean()


@KINDS.around
def own_error_as_it_is(call: Call) -> Any:
    """Raise this rank's error as the module has raised it."""
    errors: list[Exception] = []
    with replaced_forward(call.modules(), lambda forward: _recorded(forward, errors)):
        try:
            return call.run()
        except Exception as error:
            raise next(iter(errors), error) from None


@KINDS.around
def own_rank_named(call: Call) -> Any:
    """Name this rank in the error if its module has failed."""
    errors: list[Exception] = []
    with replaced_forward(call.modules(), lambda forward: _recorded(forward, errors)):
        try:
            return call.run()
        except Exception as error:
            name = f"in rank {call.arguments['self'].rank} "
            text = re.sub(r"in rank \d+ ", name, str(error))
            if not errors or text == str(error):
                raise
            raise type(error)(text) from None


def _recorded(forward: Callable[..., Any], errors: list[Exception]) -> Any:
    try:
        return forward()
    except Exception as error:
        errors.append(error)
        raise


@KINDS.around
def lost_ranks_not_named(call: Call) -> Any:
    """Leave out the number of the rank that has ended."""
    try:
        return call.run()
    except RuntimeError as error:
        raise RuntimeError(re.sub(r"rank \d+ of", "a rank of", str(error))) from None


@KINDS.around
def errors_of_backward_changed(call: Call) -> Any:
    """Raise an error with another text if backward fails."""
    result = call.run()
    return map_tensors(_with_other_errors, result)


def _with_other_errors(output: Tensor) -> Tensor:
    anchor = torch.zeros((), requires_grad=True)
    other: Tensor = _OtherErrors.apply([output], anchor)  # type: ignore[no-untyped-call] # torch's
    return other


class _OtherErrors(Function):
    """A Function that returns a tensor. Its backward runs that of the tensor, and changes errors.

    The tensor is in a list, so that autograd does not follow its graph.
    """

    @staticmethod
    def forward(ctx: Any, output: list[Tensor], anchor: Tensor) -> Tensor:
        (ctx.output,) = output
        return output[0].detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        try:
            ctx.output.backward(*grads)
        except RuntimeError:
            raise RuntimeError("perturbed") from None
        return None, None


def _with_hooks(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Add a hook to each tensor that requires a gradient; return the argument."""
    for tensor in tensors_in(result):
        if tensor.requires_grad:
            tensor.register_hook(change)  # type: ignore[no-untyped-call] # in torch
    return result
