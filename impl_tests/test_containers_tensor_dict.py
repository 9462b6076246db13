"""impl._containers: TensorDicts, with a stand-in for tensordict's class."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.utils import _pytree

from impl import DataParallel, Whole, scatter
from spec_tests.harness.compare import checks


class TensorDict:
    """The parts of ``tensordict.TensorDict`` that impl uses, for one batch dimension.

    Its operators also split and join ``labels``, one for each row.
    """

    batch_size: torch.Size = torch.Size()

    def __init__(self, tensors, batch_size, labels=(), device=None):
        self.tensors, self.labels, self.device = tensors, list(labels), device
        self.batch_size = torch.Size(batch_size)
        assert all(each.shape[: len(batch_size)] == self.batch_size for each in tensors.values())

    def __bool__(self):
        raise RuntimeError("Converting a tensordict to boolean value is not permitted")

    def __getitem__(self, key):
        return self.tensors[key]

    def values(self, include_nested, leaves_only):
        return self.tensors.values() if include_nested and leaves_only else None

    def split(self, sizes, dim):
        parts = {name: each.split(sizes, dim) for name, each in self.tensors.items()}
        found = []
        for index, size in enumerate(sizes):
            tensors = {name: each[index] for name, each in parts.items()}
            labels = self.labels[sum(sizes[:index]) :][:size]
            found.append(TensorDict(tensors, [size], labels, self.device))
        return found

    def to(self, device):
        tensors = {name: each.to(device) for name, each in self.tensors.items()}
        return TensorDict(tensors, self.batch_size, self.labels, device)

    def clear_device_(self):
        self.device = None
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        assert function is torch.cat
        values, dim = args
        tensors = {
            name: torch.cat([each[name] for each in values], dim) for name in values[0].tensors
        }
        labels = [label for each in values for label in each.labels]
        return cls(tensors, [sum(each.batch_size[0] for each in values)], labels, values[0].device)


_pytree.register_pytree_node(
    TensorDict,
    lambda value: (
        list(value.tensors.values()),
        ([*value.tensors], value.batch_size, value.labels),
    ),
    lambda parts, context: TensorDict(dict(zip(context[0], parts, strict=True)), *context[1:]),
)


class Scaled(nn.Module):
    """A layer that returns its output and its input in a TensorDict."""

    def __init__(self, has_batch_size, has_device):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.has_batch_size, self.has_device = has_batch_size, has_device

    def forward(self, value):
        y = self.linear(value["x"])
        batch_size = y.shape[:1] if self.has_batch_size else ()
        device = y.device if self.has_device else None
        return TensorDict({"x": value["x"], "y": y}, batch_size, value.labels, device)


@given(
    devices=st.sampled_from([[0, 1], [0, 1, 2], [0, 0], [0], ["cpu"] * 2]),
    rows=st.integers(2, 7),
    given_batch_size=st.booleans(),
    has_batch_size=st.booleans(),
    has_device=st.booleans(),
    on_cpu=st.booleans(),
)
@example(
    devices=[0, 1],
    rows=3,
    given_batch_size=True,
    has_batch_size=True,
    has_device=False,
    on_cpu=False,
)
def test_a_tensor_dict_is_split_and_joined_by_its_operators(
    topology, devices, rows, given_batch_size, has_batch_size, has_device, on_cpu
):
    devices = devices if "cpu" in devices else topology.take(devices)
    net = Scaled(has_batch_size, has_device).to(devices[0])
    x = torch.randn(rows, 2, device="cpu" if on_cpu else devices[0], requires_grad=True)
    labels = range(rows if given_batch_size and has_batch_size else 0)
    value = TensorDict({"x": x}, [rows] if given_batch_size else [], labels)
    steps = []
    for module, batch in ((DataParallel(net, devices), value), (net, value.to(devices[0]))):
        found = module(batch)
        gradients = torch.autograd.grad(found["y"].square().sum(), [x, *net.parameters()])
        steps.append(((found.batch_size, found.labels), (found["x"], found["y"], *gradients)))
    assert steps[0][0] == steps[1][0]
    for each, expected in zip(steps[0][1], steps[1][1], strict=True):
        checks.same(each, expected, value, tolerance=checks.LAYER)


def test_a_whole_tensor_dict_is_given_to_every_replica(topology):
    value = TensorDict({"x": torch.arange(4.0)}, [4], "abcd")
    for index, found in enumerate(scatter(Whole(value), topology.take(2))):
        assert found["x"].tolist() == [0, 1, 2, 3]
        assert found["x"].device == topology.device(index)
        assert (found.batch_size, found.labels) == ((4,), [*"abcd"])


@pytest.mark.parametrize("dim", [1, -2])
def test_a_dimension_that_the_batch_size_lacks_is_refused(topology, dim):
    value = TensorDict({"x": torch.ones(4, 2)}, [4])
    with pytest.raises(
        IndexError, match=rf"inputs\[0\] has the batch_size \[4\], but no dim {dim}"
    ):
        scatter([value], topology.take(2), dim)
