"""impl.extras.frozen: copies of frozen parameters that are kept between forwards."""

import os

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import SGD, Adagrad, Adam, AdamW
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import impl
from impl.extras import frozen
from impl_tests.samples import run_python
from spec_tests.divergences.frozen_layers import FrozenLayer, addresses

X = torch.ones(4, 2)


def wrapped(*layers, kind=impl.DataParallel):
    return kind(nn.Sequential(*layers), ["cpu", "cpu"], cache_frozen_parameters=True)


def weights(net, layer):
    """Return the weights of ``layer`` in one forward of ``net``."""
    layer.seen.clear()
    net(X)
    return layer.seen.copy()


def assert_outputs_are_those_of_the_module(net):
    torch.testing.assert_close(net(X), net.module(X))


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, Adagrad])
def test_a_step_of_a_fused_optimizer_is_noticed(kind):
    layer = FrozenLayer()
    net = wrapped(layer)
    optimizer = kind(layer.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        net(X)
        layer.weight.grad = torch.ones_like(layer.weight)
        optimizer.step()
        assert_outputs_are_those_of_the_module(net)


FIRST_STEP = """
import torch
from impl_tests.extras.test_frozen import X, FrozenLayer, wrapped

layer = FrozenLayer()
net = wrapped(layer)
net(X)
layer.weight.grad = torch.ones_like(layer.weight)
torch.optim.SGD([layer.weight], lr=0.1, fused=True).step()
print(torch.allclose(net(X), net.module(X)))
"""


def test_the_first_wrapper_of_a_process_notices_steps():
    assert run_python(FIRST_STEP).stdout == "True\n"


def test_a_step_after_a_hold_block_is_noticed():
    layer = FrozenLayer()
    net = wrapped(layer)
    net(X)
    with net.hold():
        pass
    layer.weight.grad = torch.ones_like(layer.weight)
    SGD([layer.weight], lr=0.1, fused=True).step()
    assert_outputs_are_those_of_the_module(net)


def test_a_parameter_that_replaces_a_freed_one_is_copied():
    layer = FrozenLayer()
    net = wrapped(layer)
    version = layer.weight._version
    net(X)
    layer.seen.clear()
    memory = layer.weight.data
    del layer.weight  # Without a reference in the cache, the next parameter has the same `id`.
    layer.weight = nn.Parameter(memory, requires_grad=False)
    while layer.weight._version < version:
        layer.weight.add_(1)
    assert_outputs_are_those_of_the_module(net)


def test_a_parameter_with_fewer_rows_in_the_same_memory_is_copied_again():
    layer = FrozenLayer()
    net = wrapped(layer)
    net(X)
    for parameter in layer.parameters():
        parameter.data = parameter.data[:1]
    assert_outputs_are_those_of_the_module(net)


def test_a_parameter_with_another_dtype_in_the_same_memory_is_copied_again():
    layer = FrozenLayer().half()
    net = wrapped(layer)
    net(X.half())
    for parameter in layer.parameters():
        parameter.data = parameter.data.view(torch.bfloat16)
    torch.testing.assert_close(net(X.bfloat16()), net.module(X.bfloat16()))


def test_copies_of_inference_parameters_are_not_kept():
    with torch.inference_mode():
        layer = FrozenLayer()
    net = wrapped(layer)
    storages = [StorageWeakRef(weight.untyped_storage()) for weight in weights(net, layer)]
    layer.seen.clear()
    assert [storage.expired() for storage in storages] == [False, True]


def test_copies_on_other_devices_are_not_used(topology, monkeypatch):
    # Without streams, the device alone decides.
    monkeypatch.setattr(frozen, "current_stream_by_device", lambda _: {})
    devices = topology.take(3)
    net = impl.DataParallel(FrozenLayer().to(devices[0]), devices, cache_frozen_parameters=True)
    x = X.to(devices[0])
    net(x)
    net.device_ids = [net.device_ids[index] for index in (0, 2, 1)]
    torch.testing.assert_close(net(x), net.module(x))


def test_a_parameter_on_another_device_is_copied_again(topology, monkeypatch):
    # Devices with memories of their own may use the same addresses.
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda _: 64)
    first, second, third = topology.take(3)
    layer = FrozenLayer().to(first)
    net = impl.DataParallel(layer, [first, third], cache_frozen_parameters=True)
    net(X.to(first))
    for parameter in layer.parameters():
        parameter.data = parameter.data.to(second) + 1
    net.device_ids, net.src_device_obj = [second.index, third.index], second
    net.output_device = second.index
    x = X.to(second)
    torch.testing.assert_close(net(x), layer(x))


class Sparse(nn.Module):
    """A product with a frozen sparse matrix."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(2).to_sparse(), requires_grad=False)

    def forward(self, x):
        return torch.sparse.mm(self.weight, x.mT).mT


def test_sparse_parameters_are_copied_in_each_forward():
    net = wrapped(Sparse())
    for _ in range(2):
        assert_outputs_are_those_of_the_module(net)
        net.module[0].weight.mul_(2)


def test_a_step_without_gradients_drops_no_copies():
    layer = FrozenLayer()
    net = wrapped(layer, nn.Linear(2, 1))
    optimizer = SGD(net.parameters(), lr=0.1)
    first = weights(net, layer)
    net(X).sum().backward()
    optimizer.step()
    assert addresses(weights(net, layer)) == addresses(first)


def test_only_the_changed_parameter_is_copied_again():
    layers = FrozenLayer(), FrozenLayer()
    net = wrapped(*layers)
    first = [weights(net, layer) for layer in layers]
    layers[0].weight.add_(1)
    second = [weights(net, layer) for layer in layers]
    assert len(addresses(first[0]) & addresses(second[0])) == 1  # The parameter itself.
    assert addresses(first[1]) == addresses(second[1])


class Doubled(TorchDispatchMode):
    """A mode in which copies have twice the values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result.mul_(2) if "copy_" in str(func) else result


def test_copies_of_a_dispatch_mode_are_not_kept():
    net = wrapped(FrozenLayer())
    with Doubled():
        net(X)
    assert_outputs_are_those_of_the_module(net)


class Inner(nn.Module):
    """A layer with a frozen weight of a class with its own operators."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(TwoTensor(torch.eye(2), torch.eye(2)), requires_grad=False)

    def forward(self, x):
        return x @ self.weight.a


def test_parameters_with_their_own_operators_are_copied_in_each_forward():
    layer = Inner()
    net = wrapped(layer)
    for _ in range(2):
        assert_outputs_are_those_of_the_module(net)
        layer.weight.a.add_(1)  # The version of the parameter stays the same.


def test_an_override_that_does_not_call_replicate_keeps_no_copies():
    class Own(impl.DataParallel):
        def replicate(self, module, device_ids):
            return impl.replicate(module, device_ids)

    layer = FrozenLayer()
    net = wrapped(layer, kind=Own)
    first = weights(net, layer)
    assert addresses(weights(net, layer)) & addresses(first) == addresses([layer.weight])


FORK = """
import os, torch
from impl_tests.extras.test_frozen import FrozenLayer, addresses, weights, wrapped

torch.set_num_threads(1)
layer = FrozenLayer()
net = wrapped(layer)
first = weights(net, layer)
child = os.fork()
if child == 0:
    os._exit(len(addresses(weights(net, layer)) & addresses(first)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no forks")
def test_a_forked_child_makes_copies_of_its_own():
    assert run_python(FORK).stdout == "1\n"  # The parameter itself.
