"""Steps of training with kept copies of frozen parameters, for the soak test.

In each step, other parameters are frozen, and another optimizer changes the parameters that have a
gradient. A frozen parameter may have the gradient of an earlier step, so optimizers change frozen
parameters, too. Some of the optimizers increase no version counter.
"""

import random
from collections.abc import Callable

import torch
from torch import nn, optim

from spec_tests.divergences.frozen_layers import UnversionedSGD
from spec_tests.harness.environment.target import Target

__all__ = ["make_frozen_step"]

#: The rate of all optimizers.
_RATE = 0.01


class _ReplacesData(UnversionedSGD):
    """Gradient descent that replaces ``.data``."""

    def change(self, parameter: nn.Parameter, change: torch.Tensor) -> None:
        parameter.data = parameter.data + change


def make_frozen_step(target: Target) -> Callable[[int], None]:
    """Return a function that makes one step, and compares it with that of the module itself."""
    rng = random.Random(0)
    module = nn.Sequential(
        nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)
    ).to("sim:0", torch.float64)
    module[2].weight = module[0].weight
    parameters = [*module.parameters()]
    wrap = target.data_parallel.DataParallel
    wrappers = [
        wrap(module, [0, 1, 2, 3], cache_frozen_parameters=True),
        wrap(module, [0, 2], cache_frozen_parameters="check"),
    ]
    optimizers = [
        optim.SGD(parameters, _RATE, momentum=0.5),
        optim.RMSprop(parameters, _RATE),
        *[
            kind(parameters, _RATE, fused=True)
            for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad)
        ],
        UnversionedSGD(parameters, _RATE),
        _ReplacesData(parameters, _RATE),
    ]

    def take_step(number: int) -> None:
        for parameter in parameters:
            parameter.requires_grad_(rng.random() < 0.5)
            if parameter.requires_grad or rng.random() < 0.5:
                parameter.grad = None
        x = torch.randn(5, 3, dtype=torch.float64).to("sim:0")
        y = torch.randn(5, 2, dtype=torch.float64).to("sim:0")
        wrapper, optimizer = rng.choice(wrappers), rng.choice(optimizers)
        loss, expected = ((net(x) - y).square().sum() for net in (wrapper, module))
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        if trained:
            loss.backward()
            grads = torch.autograd.grad(expected, trained)
            found = [parameter.grad for parameter in trained]
            torch.testing.assert_close(found, [*grads], rtol=1e-9, atol=1e-9)
        optimizer.step()

    return take_step
