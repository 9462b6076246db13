"""Replicas of modules that were created in inference mode compute as the modules do: RE-12.

Autograd does not save the parameters of these modules, and views of them have no gradients.
"""

from functools import partial

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import clause


class Elementwise(nn.Linear):
    """A layer that takes no views of its parameters."""

    def forward(self, x):
        return x * self.bias + self.weight.sum()


def frozen():
    return linear().requires_grad_(False)


def batch_norm():
    return nn.BatchNorm1d(4).eval()


linear, elementwise = partial(nn.Linear, 4, 4), partial(Elementwise, 4, 4)
#: The layers of each module. Those in a list are created in inference mode. In "one layer" and
#: "first layer", autograd loses the gradient of a weight that a view transposes.
MODULES = {
    "one layer": [[linear]],
    "elementwise layers": [[elementwise], [elementwise]],
    "first layer": [[linear], linear, linear],
    "last layer": [linear, [linear]],
    "all layers": [[linear], [linear]],
    "frozen first layer": [[frozen], linear],
    "frozen last layer": [linear, [frozen]],
    "buffers": [[batch_norm], linear],
}


def build(layers, device):
    found = []
    for layer in layers:
        is_inference = isinstance(layer, list)
        with torch.inference_mode(is_inference):
            found.append((layer[0] if is_inference else layer)().to(device))
    return nn.Sequential(*found)


def compute(module, x):
    """Return the output of ``module`` and the gradients of its parameters, or the error."""
    module.zero_grad()
    try:
        output = module(x)
        if output.requires_grad:
            output.sum().backward()
    except RuntimeError as error:
        return error
    return [output.detach(), *[parameter.grad for parameter in module.parameters()]]


def _names_of_none(names, values):
    return [name for name, value in zip(names, values, strict=True) if value is None]


@clause("divergences.RE-12.modules-of-inference-mode")
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_replicas_compute_as_the_module(target, topology, name, mode):
    device = topology.device(0)
    module, x = build(MODULES[name], device), torch.rand(6, 4, device=device)
    net = target.data_parallel.DataParallel(module, topology.take(3))
    with mode():
        expected, found = compute(module, x), compute(net, x)
    if isinstance(expected, RuntimeError):
        assert str(expected) in str(found)
        return
    if isinstance(found, RuntimeError):
        raise found
    names = ["output", *dict(module.named_parameters())]
    assert [each is None for each in found] == [each is None for each in expected], (
        f"{mode.__name__}, DataParallel of {name!r}: without gradient are "
        f"{_names_of_none(names, found)}, expected {_names_of_none(names, expected)}"
    )
    for result, right in zip(found, expected, strict=True):
        if right is not None:
            checks.same(result, right, tolerance=checks.LAYER)
