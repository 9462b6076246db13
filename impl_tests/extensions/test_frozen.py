"""impl._copy_cache: copies of frozen parameters that are kept between forwards."""

import copy
import itertools
import pickle
import weakref
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.testing._internal.two_tensor import TwoTensor

import impl
from impl import _copy_cache
from impl_tests.extensions.kept_modules import Doubled, UnversionedSGD
from spec_tests import checks
from spec_tests.checks.leaks import disable_gc
from spec_tests.machine import capabilities
from spec_tests.strategies.small_modules import Calls

CPUS = ["cpu"] * 2


class FrozenLayer(nn.Linear):
    def __init__(self, size=2):
        super().__init__(size, size)
        self.requires_grad_(False)
        self.seen = []

    def forward(self, x):
        self.seen.append(self.weight)
        return super().forward(x)


def wrap(devices, module=None, size=2, kind=impl.DataParallel):
    module = nn.Sequential(FrozenLayer(size), nn.Linear(size, 2)) if module is None else module
    wrapper = kind(module.to(devices[0]), devices, cache_frozen_parameters=True)
    return wrapper, torch.rand(6, size, device=devices[0])


def wrapped(topology, module=None, size=2):
    return wrap(topology.take(3), module, size)


def addresses(tensors):
    return {(tensor.device, tensor.data_ptr()) for tensor in tensors}


def weights(wrapper, x):
    """Return the weights of the replicas of one forward. The caller keeps their memory alive."""
    wrapper.module[0].seen.clear()
    wrapper(x)
    return wrapper.module[0].seen.copy()


def check_outputs(wrapper, x):
    checks.same(wrapper(x), wrapper.module(x), tolerance=checks.LAYER)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_frozen_parameters_are_copied_once(topology, mode):
    wrapper, x = wrapped(topology)
    first = weights(wrapper, x)
    with mode():
        for rows, replicas in ((6, 3), (1, 1), (4, 2), (6, 3)):
            found = addresses(weights(wrapper, x[:rows]))
            assert len(found) == replicas
            assert found <= addresses(first)


def test_copies_that_inference_mode_has_made_are_used_in_training(topology):
    wrapper, x = wrapped(topology)
    with torch.inference_mode():
        first = weights(wrapper, torch.rand(6, 2, device=x.device))
    x.requires_grad_()
    assert addresses(weights(wrapper, x)) == addresses(first)
    wrapper(x).sum().backward()
    expected = torch.autograd.grad(wrapper.module(x).sum(), x)[0]
    checks.same(x.grad, expected, tolerance=checks.LAYER)


def test_hold_uses_the_same_copies(topology):
    wrapper, x = wrapped(topology)
    first = weights(wrapper, x)
    with torch.no_grad(), wrapper.hold():
        assert addresses(weights(wrapper, x)) == addresses(first)


def test_a_device_has_one_copy_of_a_frozen_parameter(topology):
    module = nn.Linear(2, 4096).requires_grad_(False)
    wrapper, x = wrapped(topology, module)
    wrapper.cache_frozen_parameters = False
    wrapper(x)  # In the first forward, libraries allocate memory that they keep.
    before = topology.memory_allocated()
    wrapper.cache_frozen_parameters = True
    size = module.weight.nbytes + module.bias.nbytes
    # A few hundred bytes of earlier tests may be freed meanwhile. One bias has 16 KiB.
    others = module.bias.nbytes / 2
    for _ in range(3):
        wrapper(x)
        assert topology.memory_allocated() - before == pytest.approx(2 * size, abs=others)
        module.bias.add_(1)
    wrapper.cache_frozen_parameters = False
    wrapper(x)
    assert topology.memory_allocated() == pytest.approx(before, abs=others)


def test_attributes_that_a_replica_sets_are_lost(topology):
    wrapper, x = wrapped(topology)
    for weight in weights(wrapper, x):
        weight.requires_grad_()
        weight.note = "set"
    for weight in weights(wrapper, x):
        assert not weight.requires_grad
        assert not hasattr(weight, "note")


def test_copies_have_the_present_attributes_of_their_parameter(topology):
    wrapper, x = wrapped(topology)
    for note in ("first", "second"):
        wrapper.module[0].weight.note = note
        assert {weight.note for weight in weights(wrapper, x)} == {note}


def draw_weights(count, device):
    return [torch.rand(100, 100, device=device) for _ in range(count)]


def test_a_parameter_is_copied_again_if_its_address_comes_back(topology):
    wrapper, x = wrapped(topology, size=100)
    weight = wrapper.module[0].weight
    for _ in range(10):  # The address does not come back each time.
        old = draw_weights(9, x.device)
        weight.data, address = old[4], old[4].data_ptr()
        wrapper(x)
        wrapper.module[0].seen.clear()
        weight.data = torch.empty(0, device=x.device)
        del old[4:6]  # An aligned allocation needs a bit more than the memory of one tensor.
        new = draw_weights(9, x.device)
        weight.data = next((each for each in new if each.data_ptr() == address), new[0])
        check_outputs(wrapper, x)


def test_an_unfrozen_parameter_gets_gradients(topology):
    wrapper, x = wrapped(topology)
    weight = wrapper.module[0].weight
    wrapper(x)
    weight.requires_grad_()
    wrapper(x).sum().backward()
    expected = torch.autograd.grad(wrapper.module(x).sum(), weight)[0]
    checks.same(weight.grad, expected, tolerance=checks.LAYER)
    weight.data.add_(1)
    check_outputs(wrapper, x)
    weight.requires_grad_(False)
    check_outputs(wrapper, x)


def test_a_parameter_is_copied_again_after_a_replica_has_changed_its_copy(topology):
    def add(module, x):
        y = x + module.weight
        if x.min() < 0:
            module.weight.add_(1)
        return y

    weight = nn.Parameter(torch.ones(1), requires_grad=False)
    wrapper, x = wrapped(topology, Calls(add, weight=weight))
    x[-1] = -1
    for _ in range(3):
        checks.same(wrapper(x), x + 1)


def test_a_forward_on_another_stream_has_its_own_copies(topology):
    capabilities.require("distinct-streams")
    wrapper, x = wrapped(topology)
    own = addresses([wrapper.module[0].weight])
    device = topology.take(3)[1]
    topology.synchronize()
    used = []
    for stream in (None, torch.Stream(device), None):
        with stream or nullcontext():
            used.append([each for each in weights(wrapper, x) if each.device == device])
        topology.synchronize()
    for before, after in itertools.pairwise(used):
        assert addresses(before) & addresses(after) <= own


def test_parameters_of_inference_mode_are_copied_in_each_forward(topology):
    with torch.inference_mode():
        wrapper, x = wrapped(topology)
        for _ in range(2):
            wrapper.module[0].weight.add_(1)
            check_outputs(wrapper, x)


@pytest.mark.parametrize("values", [float("nan"), -0.0, True, 3, 1j], ids=repr)
def test_parameters_of_any_dtype_are_copied_once_and_after_a_hidden_change(topology, values):
    module = nn.Sequential(FrozenLayer())
    scalar = nn.Parameter(torch.tensor(values), requires_grad=False)
    module.register_parameter("scalar", scalar)
    wrapper, x = wrapped(topology, module)
    first = weights(wrapper, x)
    assert addresses(weights(wrapper, x)) == addresses(first)
    module.scalar.data.zero_()
    module[0].weight.data.add_(1)
    check_outputs(wrapper, x)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["deepcopy", "pickle"],
)
def test_duplicates_of_the_wrapper_have_copies_of_their_own(topology, duplicate):
    wrapper, x = wrapped(topology)
    before = set(vars(wrapper))
    first = weights(wrapper, x)
    wrapper.module[0].seen.clear()
    duplicated = duplicate(wrapper)
    assert set(vars(wrapper)) == set(vars(duplicated)) == before
    assert duplicated.cache_frozen_parameters is True
    assert not addresses(weights(duplicated, x)) & addresses(first)
    checks.same(list(duplicated.state_dict()), list(wrapper.state_dict()))


def switch_off(wrapper, x):
    wrapper.cache_frozen_parameters = False
    wrapper(x)
    wrapper.module[0].seen.clear()


#: Functions that end the life of copies, given a list of one wrapper, and a batch.
ENDS = {
    "wrapper": lambda wrappers, x: wrappers.clear(),
    "cpu": lambda wrappers, x: wrappers[0].cpu(),
    "option": lambda wrappers, x: switch_off(wrappers[0], x),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_copies_are_freed(topology, end):
    with disable_gc():
        *wrappers, x = wrapped(topology)
        layer = wrappers[0].module[0]
        own = layer.weight.data_ptr()
        copies = [weight for weight in weights(wrappers[0], x) if weight.data_ptr() != own]
        storages = [weakref.ref(weight.untyped_storage()) for weight in copies]
        del copies
        layer.seen.clear()
        assert [storage() is None for storage in storages] == [False] * 2
        end(wrappers, x)
        assert [storage() is None for storage in storages] == [True] * 2


@pytest.mark.parametrize("keeps_grad", [False, True], ids="keeps_grad={}".format)
def test_a_step_that_changes_no_sampled_element_is_noticed(keeps_grad):
    net, x = wrap(CPUS, size=8)
    layer = net.module[0]
    net(x)
    layer.weight.grad = torch.zeros_like(layer.weight)
    layer.weight.grad[0, 5] = 1  # A sample of 64 elements has each fourth one.
    optimizer = UnversionedSGD([layer.weight])
    if not keeps_grad:
        optimizer.register_step_post_hook(lambda each, *_: each.zero_grad())
    optimizer.step()
    check_outputs(net, x)


def test_a_parameter_with_another_dtype_in_the_same_memory_is_copied_again():
    net, x = wrap(CPUS, FrozenLayer().half())
    net(x.half())
    for parameter in net.module.parameters():
        parameter.data = parameter.data.view(torch.bfloat16)
    check_outputs(net, x.bfloat16())


def test_copies_on_other_devices_are_not_used(topology, monkeypatch):
    # Without streams, the device alone decides.
    read = partial(map, lambda device: (device, lambda: None))
    monkeypatch.setattr(_copy_cache, "stream_readers", read)
    net, x = wrapped(topology)
    net(x)
    net.device_ids = [net.device_ids[index] for index in (0, 2, 1)]
    check_outputs(net, x)


def product(weight, read=lambda weight: weight):
    """Return a module that multiplies with a frozen matrix, or with a tensor inside of it."""
    weight = nn.Parameter(weight, requires_grad=False)
    return Calls(
        lambda module, x: torch.mm(module.read(module.weight), x.mT).mT, weight=weight, read=read
    )


def with_inner_tensors():
    # The version of the parameter stays the same if an inner tensor changes.
    return product(TwoTensor(torch.eye(2), torch.eye(2)), lambda weight: weight.a)


@pytest.mark.parametrize(
    "build",
    [
        lambda: product(torch.eye(2).to_sparse()),
        lambda: product(torch.ones(2, 4)[:, ::2]),
        with_inner_tensors,
    ],
    ids=["sparse", "with gaps", "with inner tensors"],
)
def test_parameters_that_are_no_dense_memory_are_copied_in_each_forward(build):
    net, x = wrap(CPUS, build())
    for _ in range(2):
        check_outputs(net, x)
        net.module.read(net.module.weight).data.mul_(2)


def test_a_step_without_gradients_drops_no_copies():
    net, x = wrap(CPUS)
    optimizer = SGD(net.parameters(), lr=0.1)
    first = weights(net, x)
    net(x).sum().backward()
    optimizer.step()
    assert addresses(weights(net, x)) == addresses(first)


def test_copies_of_a_dispatch_mode_are_not_kept():
    net, x = wrap(CPUS)
    with Doubled():
        net(x)
    check_outputs(net, x)


def test_an_override_that_does_not_call_replicate_keeps_no_copies():
    class Own(impl.DataParallel):
        def replicate(self, module, device_ids):
            return impl.replicate(module, device_ids)

    net, x = wrap(CPUS, kind=Own)
    first, own = weights(net, x), addresses([net.module[0].weight])
    assert addresses(weights(net, x)) & addresses(first) == own
