"""Checks of the time at which backward reduces a gradient.

    batch ──► convolution, norm, ReLU ──► middle ──► flatten, linear ──► output

Backward runs from right to left. A hook on ``middle`` blocks the backward of one replica until an
event is set. The replicas are on different devices, because autograd has one thread per device.
(Hooks on a replica's parameters cannot be used: they run when the gradients are summed.)
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: Seconds to wait for an event; far more than a reduction takes on a busy machine.
TIMEOUT = 10.0
#: Number of layers of the network, and number of its layers before ``middle``.
LAYERS, MIDDLE = 5, 3

#: Function ``(x, first, last)``: applies layers ``first`` to ``last - 1`` of a replica to ``x``.
RunLayers = Callable[[Tensor, int, int], Tensor]


@dataclass(frozen=True)
class ForwardPass:
    """The tensors of one replica's forward."""

    batch: Tensor
    middle: Tensor
    output: Tensor

    @property
    def loss(self) -> Tensor:
        """The loss on the CPU, so that losses from several devices can be added."""
        return self.output.square().sum().cpu()


def run_forward(run_layers: RunLayers, device: torch.device) -> ForwardPass:
    """Run the network of kind ``layers`` on a batch of two rows, and return its tensors."""
    batch = torch.randn(2, 2, 4, 4).to(device).requires_grad_()
    middle = run_layers(batch, 0, MIDDLE)
    return ForwardPass(batch, middle, run_layers(middle, MIDDLE, LAYERS))


def is_reduced_early(
    parameter: Tensor,
    first_pass: ForwardPass,
    second_pass: ForwardPass,
    *,
    timeout: float = TIMEOUT,
) -> bool:
    """Return whether ``parameter`` gets its gradient while the second replica is blocked.

    Args:
        parameter: A parameter of the module's last layer, which backward reaches first.
        first_pass: The forward pass on the module's device. Its backward is not blocked.
        second_pass: The forward pass on another device. Its backward is blocked at ``middle``.
        timeout: Seconds until the second replica continues anyway.
    """
    reduced, results = threading.Event(), []

    def wait_for_reduction(_: Tensor) -> None:
        results.append(reduced.wait(timeout))

    parameter.register_post_accumulate_grad_hook(lambda _: reduced.set())  # type: ignore[no-untyped-call]  # untyped in torch
    second_pass.middle.register_hook(wait_for_reduction)  # type: ignore[no-untyped-call]  # untyped in torch
    torch.autograd.backward(first_pass.loss + second_pass.loss)
    return results == [True]


def record_events_on_first_device(
    parameter: Tensor, first_pass: ForwardPass, second_pass: ForwardPass
) -> list[str]:
    """Return the order of two events: the reduction and the end of the first replica's backward.

    The first replica is blocked at ``middle`` until the second replica has passed
    ``middle``. Then both replicas have their gradients of the last layer.

    Returns:
        ``"reduced"`` (``parameter`` has its gradient) and ``"end"`` (the first replica has passed
        its first layer), in order of time.
    """
    events: list[str] = []
    passed = threading.Event()

    def wait_for_second_replica(_: Tensor) -> None:
        if not passed.wait(TIMEOUT):
            events.append("the second replica did not reach its middle")

    second_pass.middle.register_hook(lambda _: passed.set())  # type: ignore[no-untyped-call]  # untyped in torch
    first_pass.middle.register_hook(wait_for_second_replica)  # type: ignore[no-untyped-call]  # untyped in torch
    parameter.register_post_accumulate_grad_hook(lambda _: events.append("reduced"))  # type: ignore[no-untyped-call]  # untyped in torch
    first_pass.batch.register_hook(lambda _: events.append("end"))  # type: ignore[no-untyped-call]  # untyped in torch
    torch.autograd.backward(first_pass.loss + second_pass.loss)
    return events
