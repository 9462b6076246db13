"""Casts of a parameter that has changed, in one region of autocast."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.machine import capabilities


class CastingLinear(nn.Linear):
    """A layer that computes in bfloat16. The replica of the first row ends before the others."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(1, 1, bias=False, device=device)
        self.has_ended = threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, cast to bfloat16."""
        if x[0].item() > 1:
            assert self.has_ended.wait(60)
        # The end of the region in a worker clears the cache of casts.
        with torch.autocast(x.device.type, torch.bfloat16):
            result = super().forward(x)
        self.has_ended.set()
        return result


def cast_changed_parameters(
    net: Any, earlier: str, block: Callable[[], AbstractContextManager[object]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Change the parameter of a wrapped `CastingLinear` and cast it, in one region of autocast.

    Args:
        net: The wrapper.
        earlier: If it is ``caller``, the caller casts the parameter between the forwards.
        block: Returns the context manager in which each forward runs.

    Yields:
        The output of the wrapper, and the right output.
    """
    capabilities.require("autocast")
    module: CastingLinear = net.module
    device = module.weight.device
    x = torch.arange(1.0, 5.0).to(device)[:, None]
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        for value in (1, 2):
            module.weight.fill_(value)
            with block():
                yield net(x), value * x.bfloat16()
            if earlier == "caller":
                module(x)
            module.has_ended.clear()
