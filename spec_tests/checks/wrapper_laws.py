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
    gradient = gradients_of([output], leaves, unused_as_zeros)
    return snapshot(Named(output=output, gradient=gradient), {}, strides=False)


def gradients_of(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], unused_as_zeros: bool = False
) -> Sequence[Tensor | None] | None:
    """Return the gradients of ``leaves``; None if there are no leaves, or no output needs grad."""
    outputs = [output for output in outputs if output.requires_grad]
    if not outputs or not leaves:
        return None
    cotangents = [*map(cotangent, outputs)]
    return torch.autograd.grad(
        outputs, leaves, cotangents, allow_unused=True, materialize_grads=unused_as_zeros
    )


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
    buffers = dict(module.named_buffers())
    found = Named(output=outputs, gradient=gradients_of(outputs, leaves), buffers=buffers)
    return snapshot(found, {}, strides=False)
