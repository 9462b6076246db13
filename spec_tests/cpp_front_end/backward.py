"""When a gradient is reduced: while backward still runs, or only after it.

    batch ──► convolution, norm, ReLU ──► middle ──► flatten, linear ──► output

Backward comes from the right. A hook on the middle holds one replica there, until something has
happened elsewhere. Autograd has a thread a device, so the replicas are on different devices. (A
hook on a replica's parameter is of no use: it is called when the sum is made, not before.)
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: Far longer than a reduction takes on a busy machine.
PATIENCE = 10.0  # seconds
LAYERS, MIDDLE = 5, 3

#: Applies some layers of a replica to a tensor: those from one number up to another.
Part = Callable[[Tensor, int, int], Tensor]


@dataclass(frozen=True)
class Forward:
    """One replica's forward, ready for backward."""

    batch: Tensor
    middle: Tensor
    output: Tensor

    @property
    def loss(self) -> Tensor:
        """A scalar on the CPU, where losses of several devices can be added."""
        return self.output.square().sum().cpu()


def forward(part: Part, device: torch.device) -> Forward:
    """Run the module of kind ``layers`` on two rows."""
    batch = torch.randn(2, 2, 4, 4, device=device, requires_grad=True)
    middle = part(batch, 0, MIDDLE)
    return Forward(batch, middle, part(middle, MIDDLE, LAYERS))


def is_reduced_early(
    last: Tensor, home: Forward, away: Forward, *, patience: float = PATIENCE
) -> bool:
    """Whether ``last`` is reduced while backward is held in the middle of ``away``.

    Args:
        last: A parameter of the module's last layer, which backward reaches first.
        home: The replica on the module's device; nothing holds it.
        away: The replica on another device.
        patience: Seconds until backward goes on all the same.
    """
    reduced, found = threading.Event(), []

    def hold(_: Tensor) -> None:
        found.append(reduced.wait(patience))

    last.register_post_accumulate_grad_hook(lambda _: reduced.set())  # type: ignore[no-untyped-call]  # untyped in torch
    away.middle.register_hook(hold)  # type: ignore[no-untyped-call]  # untyped in torch
    torch.autograd.backward(home.loss + away.loss)
    return found == [True]


def order_at_home(last: Tensor, home: Forward, away: Forward) -> list[str]:
    """What comes first on the module's device once the sum for ``last`` can be made.

    ``home`` is held in its middle until ``away`` has passed its own, by when the last layer's
    gradients of both are there.

    Returns:
        ``"reduced"``, when ``last`` had its gradient, and ``"end"``, when ``home`` had passed its
        first layer, in the order of time.
    """
    order: list[str] = []
    passed = threading.Event()

    def hold(_: Tensor) -> None:
        if not passed.wait(PATIENCE):
            order.append("the other replica never came")

    away.middle.register_hook(lambda _: passed.set())  # type: ignore[no-untyped-call]  # untyped in torch
    home.middle.register_hook(hold)  # type: ignore[no-untyped-call]  # untyped in torch
    last.register_post_accumulate_grad_hook(lambda _: order.append("reduced"))  # type: ignore[no-untyped-call]  # untyped in torch
    home.batch.register_hook(lambda _: order.append("end"))  # type: ignore[no-untyped-call]  # untyped in torch
    torch.autograd.backward(home.loss + away.loss)
    return order
