"""Laws of DataParallel: its results are those of the module alone, or of a plain variant."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.checks.outcome import Call, cotangent
from spec_tests.checks.snapshot import Named, snapshot
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target


def run_wrapped_and_plain(
    call: Call,
    target: Target,
    topology: Topology,
    *,
    grad: bool = True,
    unused_as_zeros: bool = False,
) -> Any:
    """Return output and gradients of ``DataParallel(module)``, and those of ``module`` alone.

    Args:
        call: A call of ``DataParallel`` or ``data_parallel`` with one tensor.
        target: The target that makes the call.
        topology: The devices of the run.
        grad: The grad mode of the call.
        unused_as_zeros: Whether the gradient of an unused tensor is compared as zeros. The
            reference returns zeros in place of None (FN-1).
    """
    inputs = call.inputs(topology)
    module, (x,) = inputs["module"], inputs["args"]
    leaves = [leaf for leaf in (x, *module.parameters(), *module.buffers()) if leaf.requires_grad]
    actual = call.run(target, inputs)
    with torch.set_grad_enabled(grad):
        expected = module(x.to(actual.device))
    return tuple(with_gradients(output, leaves, unused_as_zeros) for output in (actual, expected))


def with_gradients(output: Tensor, leaves: Sequence[Tensor], unused_as_zeros: bool = False) -> Any:
    """Return a snapshot of ``output`` and, if it requires grad, of the gradients of ``leaves``."""
    gradients: Sequence[Tensor | None] | None = None
    if output.requires_grad:
        gradients = torch.autograd.grad(
            output,
            leaves,
            cotangent(output),
            allow_unused=True,
            materialize_grads=unused_as_zeros,
        )
    return snapshot(Named(output=output, gradient=gradients), {}, strides=False)


def results_of(
    module: nn.Module,
    wrap: Callable[[nn.Module], Callable[[Tensor], Tensor]],
    xs: Sequence[Tensor],
) -> Any:
    """Return the outputs of the wrapped module, the gradients of its parameters, and its buffers.

    ``xs`` are the inputs of the calls, one after the other.
    """
    parallel = wrap(module)
    outputs = [parallel(x) for x in xs]
    leaves = [leaf for leaf in (*module.parameters(), *module.buffers()) if leaf.requires_grad]
    gradients: Sequence[Tensor | None] | None = None
    if leaves and outputs[-1].requires_grad:
        gradients = torch.autograd.grad(
            outputs, leaves, [*map(cotangent, outputs)], allow_unused=True
        )
    buffers = dict(module.named_buffers())
    found = Named(output=outputs, gradient=gradients, buffers=buffers)
    return snapshot(found, {}, strides=False)
