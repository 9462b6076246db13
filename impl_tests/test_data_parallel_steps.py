"""impl.DataParallel: overridden steps, hold with two devices, and recorded calls."""

from importlib import import_module

import pytest
import torch
from torch import nn

from impl import DataParallel, data_parallel


class Counting(DataParallel):
    """A wrapper that counts the calls of ``replicate``."""

    replications = 0

    def replicate(self, module, device_ids):
        self.replications += 1
        return super().replicate(module, device_ids)


def test_hold_caches_the_replicas_of_two_devices(topology):
    net = Counting(nn.Linear(2, 2).to(topology.device(0)), topology.take(2))
    with torch.no_grad(), net.hold():
        for _ in range(2):
            net(torch.ones(4, 2, device=topology.device(0)))
    assert net.replications == 1


class KeywordsOnly(DataParallel):
    """A wrapper whose ``scatter`` returns fewer tuples of arguments than dictionaries."""

    def scatter(self, inputs, kwargs, device_ids):
        return (), ({"x": 1},)


def test_keyword_arguments_without_positional_ones_are_not_dropped(topology):
    net = KeywordsOnly(nn.Identity().to(topology.device(0)), topology.take(1))
    with pytest.raises(IndexError):
        net(1)


class OwnSteps(DataParallel):
    """A wrapper whose ``scatter`` and ``parallel_apply`` call no function of impl."""

    def scatter(self, inputs, kwargs, device_ids):
        return [inputs], [kwargs]

    def parallel_apply(self, replicas, inputs, kwargs):
        return [self.module(*inputs[0])]


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_a_wrapper_with_its_own_steps_cannot_be_traced(topology):
    x = torch.ones(4, 2, device=topology.device(0))
    net = OwnSteps(nn.Linear(2, 2).to(topology.device(0)), topology.take(2))
    with pytest.raises(RuntimeError, match="trace the module itself"):
        torch.jit.trace(net, x)


class Sum(nn.Module):
    """A module that returns the sum of a tensor and the tensors in a dictionary."""

    def forward(self, x, more):
        return x + more["a"][0] + more["b"]


def test_a_wrapper_without_devices_is_one_graph(monkeypatch):
    module = import_module("impl.data_parallel")
    monkeypatch.setattr(module, "choose_devices", lambda *_: None)
    net = DataParallel(Sum())
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x, {"a": [x, (1, None)], "b": x}), 3 * x)


def test_a_wrapper_of_one_cpu_device_is_one_graph():
    net = DataParallel(Sum(), ["cpu"])
    x = torch.ones(2)
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x, {"a": [x], "b": x}), 3 * x)


def test_several_devices_break_the_graph(topology):
    linear = nn.Linear(2, 2).to(topology.device(0)).requires_grad_(False)
    net = DataParallel(linear, topology.take(2))
    x = torch.ones(4, 2, device=topology.device(0))
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    found = torch.compile(lambda x: net(x + 1) * 2, backend=backend)(x)
    torch.testing.assert_close(found, net(x + 1) * 2)
    assert len(graphs) == 2
    with pytest.raises(Exception, match="several_devices"):
        torch.compile(net, fullgraph=True, backend="eager")(x)


def test_device_ids_may_be_an_iterator(topology):
    ordinals = [device.index for device in topology.take(2)]
    net = torch.nn.Linear(2, 2).to(topology.device(0))
    x = torch.ones(4, 2, device=topology.device(0))
    wrapper = DataParallel(net, iter(ordinals))
    assert wrapper.device_ids == ordinals
    assert torch.equal(wrapper(x), data_parallel(net, x, iter(ordinals)))
