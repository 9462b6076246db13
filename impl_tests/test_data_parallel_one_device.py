"""impl.DataParallel on one device."""

import pytest
import torch
from torch import nn

import impl


class Scaled(nn.Module):
    """A layer whose output is multiplied by a keyword argument."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, scale=1.0):
        return self.layer(x) * scale


@pytest.fixture
def parallel(topology):
    return impl.DataParallel(Scaled().to(topology.device(0)), [0])


@pytest.fixture
def x(topology):
    return torch.ones(3, 2, device=topology.device(0))


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_a_trace_computes_the_module(parallel, x):
    traced = torch.jit.trace(parallel, x)
    torch.testing.assert_close(traced(2 * x), parallel.module(2 * x))


def test_a_forward_is_recorded_by_the_profiler(parallel, x):
    with torch.profiler.profile() as profile:
        parallel(x)
    assert "DataParallel.forward" in {event.name for event in profile.events()}


def test_parameters_on_another_device_are_refused(parallel, x, topology):
    parallel.module.to(topology.device(1))
    with pytest.raises(RuntimeError, match="parameters and buffers on"):
        parallel(x)


@pytest.mark.parametrize("kind", ["attribute", "subclass"])
def test_an_overridden_scatter_receives_and_passes_all_arguments(x, topology, kind):
    def scatter(inputs, kwargs, device_ids):
        return [tuple(2 * each for each in inputs)], [kwargs]

    class Parallel(impl.DataParallel):
        if kind == "subclass":

            def scatter(self, *args):
                return scatter(*args)

    parallel = Parallel(Scaled().to(topology.device(0)), [0])
    if kind == "attribute":
        parallel.scatter = scatter
    torch.testing.assert_close(parallel(x, scale=3.0), parallel.module(2 * x, scale=3.0))


class Scriptable(impl.DataParallel):
    def forward(self, x):
        return self.module(x)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated, and warns of annotations.
def test_a_subclass_can_be_scripted(topology):
    net = nn.Linear(2, 1)
    scripted = torch.jit.script(Scriptable(net, topology.take(1)))
    x = torch.ones(3, 2, device=topology.device(0))
    assert torch.equal(scripted(x), net(x))
