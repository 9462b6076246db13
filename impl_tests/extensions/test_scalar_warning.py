"""impl.gather and impl.DataParallel with scalar_warning=False: scalars without a warning."""

import pytest
import torch
from torch import nn

import impl
from spec_tests import checks
from spec_tests.strategies.small_modules import Calls

OUTPUTS = {"tensor": lambda loss: loss, "nested": lambda loss: {"losses": [loss, loss.detach()]}}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("contain", OUTPUTS.values(), ids=OUTPUTS)
def test_losses_of_replicas_become_a_vector(topology, contain):
    weight = nn.Parameter(torch.ones(()))
    module = Calls(lambda module, x: contain((x * module.weight).sum()), weight=weight)
    module.to(topology.device(0))
    wrapper = impl.DataParallel(module, topology.take(2), scalar_warning=False)
    out = wrapper(torch.ones(5, device=topology.device(0)))
    loss = out if isinstance(out, torch.Tensor) else out["losses"][0]
    loss.sum().backward()
    checks.same((loss.tolist(), module.weight.grad.item()), ([3.0, 2.0], 5.0))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [1, 3], ids="scalars={}".format)
def test_gather_makes_a_vector_of_scalars(topology, count):
    scalars = [torch.tensor(float(slot), device=topology.device(slot)) for slot in range(count)]
    vector = impl.gather(scalars, topology.device(0), scalar_warning=False)
    checks.same(vector, torch.arange(float(count), device=topology.device(0)))


def test_scalars_along_another_dimension_are_still_refused(topology):
    scalars = [torch.ones((), device=device) for device in topology.take(2)]
    with pytest.raises(IndexError, match="Dimension specified as 1 but"):
        impl.gather(scalars, topology.device(0), dim=1, scalar_warning=False)
