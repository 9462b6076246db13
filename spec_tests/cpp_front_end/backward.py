"""The time at which backward reduces a gradient of a module of the kind ``layers``.

    batch ──► convolution, norm, ReLU ──► middle ──► flatten, linear ──► output

Backward runs from right to left. A hook on ``middle`` blocks the backward of one of two replicas.
The replicas are on different devices, because autograd has one thread per device. (Hooks on a
replica's parameters cannot be used: they run when the gradients are summed.)
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Seconds to wait for an event; far more than a reduction takes on a busy machine.
TIMEOUT = 10.0
#: Number of layers of the network, and number of its layers before ``middle``.
LAYERS, MIDDLE = 5, 3


class ForwardPass(NamedTuple):
    """The tensors of one replica's forward."""

    batch: Any
    middle: Any
    loss: Tensor


def run_forward(run_layers: Callable[[Tensor, int, int], Tensor], device: Any) -> ForwardPass:
    """Run a replica on a batch of two rows.

    Args:
        run_layers: Applies the layers ``first`` to ``last - 1`` of the replica to a tensor.
        device: The device of the replica.
    """
    batch = torch.randn(2, 2, 4, 4).to(device).requires_grad_()
    middle = run_layers(batch, 0, MIDDLE)
    # The losses of several devices are added on the CPU.
    return ForwardPass(batch, middle, run_layers(middle, MIDDLE, LAYERS).square().sum().cpu())


def is_reduced_early(parameter: Any, first: ForwardPass, second: ForwardPass) -> bool:
    """Return whether ``parameter`` gets its gradient while the second replica is blocked.

    Args:
        parameter: A parameter of the module's last layer, which backward reaches first.
        first: The forward pass on the module's device.
        second: The forward pass on another device, whose backward is blocked at ``middle``.
    """
    reduced, results = threading.Event(), []
    parameter.register_post_accumulate_grad_hook(lambda _: reduced.set())
    second.middle.register_hook(lambda _: results.append(reduced.wait(TIMEOUT)))
    torch.autograd.backward(first.loss + second.loss)
    return results == [True]
