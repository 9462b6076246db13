"""impl._parameter_containers: parts and copies of lists and dictionaries of parameters."""

import copy
import pickle
from functools import reduce

import pytest
import torch
from torch import nn

from impl import DataParallel, replicate

CPUS = ["cpu", "cpu"]


class Scaled(nn.Module):
    """A module that multiplies its input by the tensors that ``read`` returns."""

    def __init__(self, read=None):
        super().__init__()
        self.read = read
        self.single = nn.Parameter(torch.full((2,), 2.0))
        self.listed = nn.ParameterList([torch.full((2,), each) for each in (3.0, 5.0, 7.0)])
        self.named = nn.ParameterDict({"a": torch.full((2,), 11.0)})
        self.other = nn.ParameterDict({"b": torch.full((2,), 13.0)})

    def forward(self, x):
        return reduce(torch.mul, self.read(self), x)


def gradients(net, wrapper, x):
    """Return the gradients of the parameters that ``net`` has before a forward of ``wrapper``."""
    parameters = dict(net.named_parameters())
    wrapper(x).sum().backward()
    found = {name: each.grad for name, each in parameters.items()}
    return {name: None if grad is None else grad.tolist() for name, grad in found.items()}


def replace_first(net):
    net.listed[0] = net.listed[1]
    return net.listed


def update(net):
    net.named.update({"c": net.single})
    return net.named.values()


def detach(net):
    net.listed.append(net.single * 2)
    net.named["a"] = net.listed[0].abs()
    return [*net.listed[1:], *net.named.values()]


READS = {
    "slice": lambda net: net.listed[:],
    "slice of slice": lambda net: net.listed[1:][::-1],
    "append": lambda net: net.listed.append(net.single),
    "extend": lambda net: net.listed.extend(net.listed[1:]),
    "item": replace_first,
    "copy": lambda net: net.named.copy().values(),
    "union": lambda net: (net.named | net.other).values(),
    "update": update,
    "detach": detach,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_gradients_reach_the_parameters_as_in_the_module_alone(topology, read):
    net = Scaled(read).to(topology.device(0))
    x = torch.ones(4, 2, device=topology.device(0))
    # The replicas compute first, because a forward of the module itself changes its members.
    found = gradients(net, DataParallel(net, topology.take(2)), x)
    net.zero_grad()
    assert found == gradients(net, net, x)


@pytest.mark.parametrize("name", ["listed", "named"])
def test_copied_and_pickled_containers_are_those_of_pytorch(name):
    net = Scaled()
    original = getattr(net, name)
    for replica in replicate(net, CPUS, with_parameters=True):
        pickled = pickle.dumps(getattr(replica, name))
        for made in pickle.loads(pickled), getattr(copy.deepcopy(replica), name):
            assert type(made) is type(original)
            assert str(made.state_dict()) == str(original.state_dict())
