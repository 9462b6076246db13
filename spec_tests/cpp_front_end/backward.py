"""When a gradient is reduced: while backward still runs, or only after it."""

import threading

from torch import Tensor

#: Far longer than a reduction takes on a busy machine.
PATIENCE = 10.0  # seconds


def reduced_early(last: Tensor, first: Tensor, *, patience: float = PATIENCE) -> list[bool]:
    """Hold backward at ``first`` until ``last`` has its gradient, or patience ends.

    Args:
        last: A parameter of the module's last layer, which backward reaches first.
        first: A replica's copy of a parameter of the first layer, on another device than ``last``.
            The thread that serves its device is held; that of the module's device is not.
        patience: Seconds until backward goes on all the same.

    Returns:
        A list to which backward adds whether ``last`` was reduced while ``first`` had no gradient.
    """
    found: list[bool] = []
    reduced = threading.Event()
    last.register_post_accumulate_grad_hook(lambda _: reduced.set())  # type: ignore[no-untyped-call]  # untyped in torch
    first.register_hook(lambda _: found.append(reduced.wait(patience)))  # type: ignore[no-untyped-call]  # untyped in torch
    return found
