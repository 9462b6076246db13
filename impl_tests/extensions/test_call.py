"""DataParallel.call and the argument ``method`` of map run other methods than forward."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import impl
from spec_tests import checks


class Repeated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.calls_of_layer = self.layer.forward
        self.other = nn.Linear(2, 2).forward  # Not of a module of the tree.

    def forward(self, x):
        return self.layer(x).tanh()

    def repeat(self, x, *, count=2):
        for _ in range(count):
            x = self(x)
        return x

    def take_columns(self, x):
        return x[:, : int(x[0, 0])]

    def first_words(self, texts):
        return [text.split()[0] for text in texts]

    @staticmethod
    def negate(x):
        return -x


@pytest.fixture(scope="module")
def build(topology):
    def wrap(count, **options):
        devices = topology.take(count)
        module = Repeated().to(devices[0] if devices else "cpu")
        return impl.DataParallel(module, devices, **options)

    return wrap


@pytest.mark.parametrize("count", [1, 2, 3])
@given(rows=st.integers(1, 7), calls=st.integers(0, 3))
def test_a_method_computes_as_on_the_module(topology, build, count, rows, calls):
    wrapper = build(count)
    x = torch.randn(rows, 2, device=topology.take(1)[0], requires_grad=True)
    found = wrapper.call("repeat", x, count=calls)
    expected = wrapper.module.repeat(x, count=calls)
    with torch.no_grad(), wrapper.hold():
        batches = [{"x": x, "count": calls}] * 2
        outputs = [wrapper.call("repeat", x, count=calls), *wrapper.map(batches, method="repeat")]
        of_layer = wrapper.call("calls_of_layer", x)
    for output in (found, *outputs):
        checks.same(output, expected, tolerance=checks.LAYER)
    checks.same(of_layer, wrapper.module.layer(x), tolerance=checks.LAYER)
    if calls:
        leaves = [x, *wrapper.module.parameters()]
        grads = (torch.autograd.grad(output.sum(), leaves) for output in (found, expected))
        for pair in zip(*grads, strict=True):
            checks.same(*pair, tolerance=checks.LAYER)


def test_without_devices_the_method_of_the_module_is_called():
    module = Repeated()
    x = torch.randn(3, 2)
    wrapper = impl.DataParallel(module, ["cpu"])
    wrapper.device_ids = []
    checks.same(wrapper.call("repeat", x), module.repeat(x))


def test_results_of_different_lengths_name_the_shape_of_each_replica(topology, build):
    x = torch.tensor([[1.0, 0], [1, 0], [2, 0]], device=topology.take(1)[0])
    with pytest.raises(RuntimeError) as caught:
        build(2).call("take_columns", x)
    assert "replica 0: [2, 1], replica 1: [1, 2]" in str(caught.value.__notes__)


@pytest.mark.parametrize("name", ["missing", "layer", "negate", "training", "other"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_name_that_is_no_method_of_the_module_is_refused(build, count, name):
    wrapper = build(count)
    text = f"{name!r} is not a method of Repeated"
    with pytest.raises(TypeError, match=text):
        wrapper.call(name, torch.zeros(2, 2))
    with pytest.raises(TypeError, match=text):
        wrapper.map([], method=name)


@pytest.mark.parametrize("name", [3, None, Repeated.repeat])
def test_a_method_is_given_by_its_name(build, name):
    with pytest.raises(TypeError, match="method must be the name of a method"):
        build(2).call(name, torch.zeros(2, 2))


def test_arguments_without_a_tensor_are_refused_on_several_devices(build):
    wrapper = build(2)
    with pytest.raises(ValueError, match="no argument of 'first_words' contains a tensor"):
        wrapper.call("first_words", ["a cat", "a dog"])
    assert build(1).call("first_words", ["a cat", "a dog"]) == ["a", "a"]
    with torch.no_grad():
        batches = [(["a cat"],), (["the dog", "no"],)]
        assert [*wrapper.map(batches, method="first_words")] == [["a"], ["the", "no"]]


def test_an_error_of_a_method_names_the_replica(topology, build):
    with pytest.raises(TypeError, match=r"Caught TypeError in replica 0 .*") as caught:
        build(2).call("repeat", torch.zeros(2, 2, device=topology.take(1)[0]), count="two")
    assert "cannot be interpreted as an integer" in str(caught.value)


@pytest.mark.parametrize("method", ["forward", "repeat"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_wrapper_with_a_loss_calls_only_forward(topology, count, method):
    devices = topology.take(count)
    wrapper = impl.DataParallelWithLoss(Repeated().to(devices[0]), nn.MSELoss(), devices)
    with pytest.raises(TypeError, match="DataParallelWithLoss calls only forward"):
        wrapper.call(method, torch.zeros(2, 2), target=torch.zeros(2, 2))
    with pytest.raises(TypeError, match="DataParallelWithLoss calls only forward"):
        wrapper.map([], method=method)
