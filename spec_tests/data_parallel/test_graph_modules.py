"""Traced and exported modules. The reference refuses those with a parameter at the root: RE-9."""

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from spec_tests import checks
from spec_tests.machine.clauses import clause


class ClassToken(nn.Module):
    """A module with a parameter and a buffer at the root, like a vision transformer."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.arange(1.0, 4.0))
        self.layer = nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(3))
        _fill(self.layer)

    def forward(self, x):
        return self.layer(x * self.token + self.shift)


def _fill(layer):
    """Fill a layer with whole numbers: their sums do not depend on the order of the addends."""
    for parameter in layer.parameters():
        nn.init.constant_(parameter, len(parameter))
    return layer


def _trace_child(module):
    return nn.Sequential(symbolic_trace(module), symbolic_trace(_fill(nn.Linear(2, 2))))


def _export(module):
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (torch.ones(4, 3),), dynamic_shapes=({0: batch},))
    return program.module()


def gradients(module, output):
    """Run backward; return the gradient of each parameter of ``module``."""
    module.zero_grad()
    output.square().sum().backward()
    return {name: parameter.grad.tolist() for name, parameter in module.named_parameters()}


# torch.export calls functions of PyTorch that are deprecated.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@clause("divergences.RE-9.graph-modules-are-trained")
@pytest.mark.parametrize(
    "make", [symbolic_trace, _trace_child, _export], ids=["traced", "children", "exported"]
)
@pytest.mark.parametrize("devices", [(0, 1), (0, 0, 1)], ids=str)
def test_graph_modules_are_trained_like_the_unwrapped_module(target, topology, make, devices):
    module = make(ClassToken()).to(topology.device(0))
    rows = torch.arange(12.0).reshape(4, 3).to(topology.device(0))
    wrapper = target.data_parallel.DataParallel(module, topology.take(devices))
    checks.same(wrapper(rows).tolist(), module(rows).tolist())
    checks.same(gradients(module, wrapper(rows)), gradients(module, module(rows)))
