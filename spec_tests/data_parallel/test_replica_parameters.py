"""Parameters of the replicas of DataParallel. Those of the reference have none: RE-13."""

from operator import attrgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import clause
from spec_tests.strategies.modules import SEPARATE, module_specs, move


class ReadingParameters(nn.Module):
    """A module that records the names and devices of its parameters."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.found = []

    def forward(self, x):
        names = [name for name, _ in self.named_parameters(remove_duplicate=False)]
        children = [len([*child.parameters()]) for child in self.modules()]
        assert all(parameter.device == x.device for parameter in self.parameters())
        assert all(attrgetter(name)(self) is copy for name, copy in self.named_parameters())
        self.found.append((names, children))
        return x


@clause("divergences.RE-13.replicas-have-parameters")
@given(spec=module_specs(kinds=SEPARATE), devices=st.integers(1, 4), grad=st.booleans())
def test_replicas_have_the_names_of_the_parameters(target, topology, spec, devices, grad):
    placed = topology.take(devices)
    module = ReadingParameters(spec.build(topology)).to(placed[0])
    x = torch.rand(devices, 2, device=placed[0])
    with torch.set_grad_enabled(grad):
        module(x)
        target.data_parallel.DataParallel(module, placed)(x)
        target.data_parallel.data_parallel(module, x, placed)
    own, *replicas = module.found
    assert module.found == [module.found[0]] * (1 + 2 * devices), (
        f"names and counts of parameters in the replicas: {replicas}, in the module: {own}"
    )


class Regularized(nn.Module):
    """A tied layer that returns a row with the squared norm of its parameters."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.layer.weight
        self.layer.register_parameter("missing", None)

    def forward(self, x):
        norm = sum(parameter.square().sum() for parameter in self.parameters())
        return norm * x.sum(1)


@clause("divergences.RE-13.replicas-have-parameters")
@pytest.mark.parametrize("entry_point", ["function", "class"])
@pytest.mark.parametrize("devices", [2, 3])
def test_gradients_reach_the_parameters(topology, wrap, entry_point, devices):
    module = move(Regularized(), topology.device(0))
    x = torch.rand(4, 3, device=topology.device(0))
    found, expected = wrap(module, devices, entry_point)(x), module(x)
    checks.same(found, expected, tolerance=checks.LAYER)
    parameters = [*module.parameters()]
    assert len(parameters) == 2
    gradients, expected_gradients = (
        snapshot(torch.autograd.grad(output.sum(), parameters), {}, strides=False)
        for output in (found, expected)
    )
    checks.same(gradients, expected_gradients, tolerance=checks.LAYER)
