"""Copies of frozen parameters are kept between forwards. The reference keeps no copies: DP-10."""

import copy
import itertools
import pickle
import threading
import weakref
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.divergences.frozen_layers import FrozenLayer, UnversionedSGD, addresses
from spec_tests.divergences.frozen_steps import MODULES, run_steps, steps_of_training
from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.leaks import disable_gc
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities

KEPT_CLAUSE = clause("divergences.DP-10.copied-once")
SAME_CLAUSE = clause("divergences.DP-10.results-are-the-same")
VERSION_CLAUSE = clause("divergences.DP-10.versions")
MEMORY_CLAUSE = clause("divergences.DP-10.memory")
SHAPE_CLAUSE = clause("divergences.DP-10.shapes")
FLAG_CLAUSE = clause("divergences.DP-10.unfrozen-parameters")
STEP_CLAUSE = clause("divergences.DP-10.optimizer-steps")
REPLICA_CLAUSE = clause("divergences.DP-10.changes-by-a-replica")
STREAM_CLAUSE = clause("divergences.DP-10.streams")
OTHER_CLAUSE = clause("divergences.DP-10.other-tensors")
CHECK_CLAUSE = clause("divergences.DP-10.values-are-compared")
FREED_CLAUSE = clause("divergences.DP-10.copies-are-freed")


def wrapped(target, topology, module=None, option=True, size=2):
    placed = topology.take(3)
    module = nn.Sequential(FrozenLayer(size), nn.Linear(size, 2)) if module is None else module
    wrapper = target.data_parallel.DataParallel(
        module.to(placed[0]), placed, cache_frozen_parameters=option
    )
    return wrapper, torch.rand(6, size, device=placed[0])


def weights(wrapper, x):
    """Return the weights of the replicas of one forward. The caller keeps their memory alive."""
    wrapper.module[0].seen.clear()
    wrapper(x)
    return wrapper.module[0].seen.copy()


def check_outputs(wrapper, x):
    checks.same(wrapper(x), wrapper.module(x), tolerance=checks.LAYER)


@KEPT_CLAUSE
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_frozen_parameters_are_copied_once(target, topology, mode):
    wrapper, x = wrapped(target, topology)
    first = weights(wrapper, x)
    with mode():
        for rows, replicas in ((6, 3), (1, 1), (4, 2), (6, 3)):
            found = addresses(weights(wrapper, x[:rows]))
            assert len(found) == replicas
            assert found <= addresses(first)


@KEPT_CLAUSE
def test_copies_that_inference_mode_has_made_are_used_in_training(target, topology):
    wrapper, x = wrapped(target, topology)
    with torch.inference_mode():
        first = weights(wrapper, torch.rand(6, 2, device=x.device))
    x.requires_grad_()
    assert addresses(weights(wrapper, x)) == addresses(first)
    wrapper(x).sum().backward()
    expected = torch.autograd.grad(wrapper.module(x).sum(), x)[0]
    checks.same(x.grad, expected, tolerance=checks.LAYER)


@KEPT_CLAUSE
def test_hold_uses_the_same_copies(target, topology):
    wrapper, x = wrapped(target, topology)
    first = weights(wrapper, x)
    with torch.no_grad(), wrapper.hold():
        assert addresses(weights(wrapper, x)) == addresses(first)


@KEPT_CLAUSE
def test_a_device_has_one_copy_of_a_frozen_parameter(target, topology):
    module = nn.Linear(2, 4096).requires_grad_(False)
    wrapper, x = wrapped(target, topology, module)
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


@SAME_CLAUSE
@given(name=st.sampled_from([*MODULES]), steps=steps_of_training(), devices=st.integers(2, 3))
def test_training_is_the_same_as_without_kept_copies(target, topology, name, steps, devices):
    kept, fresh = (
        run_steps(target, topology.take(devices), name, steps, cache_frozen_parameters=option)
        for option in (True, False)
    )
    checks.same(kept, fresh, (name, steps))


@SAME_CLAUSE
def test_threads_get_the_outputs_of_the_module(target, topology):
    found = []
    wrapper, x = wrapped(target, topology)
    barrier = threading.Barrier(4, timeout=20)

    def run():
        barrier.wait()
        found.extend(wrapper(x) for _ in range(5))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    for output in found:
        checks.same(output, wrapper.module(x), tolerance=checks.LAYER)


@SAME_CLAUSE
def test_attributes_that_a_replica_sets_are_lost(target, topology):
    wrapper, x = wrapped(target, topology)
    for weight in weights(wrapper, x):
        weight.requires_grad_()
        weight.note = "set"
    for weight in weights(wrapper, x):
        assert not weight.requires_grad
        assert not hasattr(weight, "note")


@SAME_CLAUSE
def test_copies_have_the_present_attributes_of_their_parameter(target, topology):
    wrapper, x = wrapped(target, topology)
    for note in ("first", "second"):
        wrapper.module[0].weight.note = note
        assert {weight.note for weight in weights(wrapper, x)} == {note}


@VERSION_CLAUSE
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_parameter_that_was_changed_in_place_is_copied_again(target, topology, mode):
    wrapper, x = wrapped(target, topology)
    wrapper(x)
    with mode():
        wrapper.module[0].weight.add_(1)
    check_outputs(wrapper, x)
    state = {name: value + 1 for name, value in wrapper.state_dict().items()}
    wrapper.load_state_dict(state)
    check_outputs(wrapper, x)


def set_data(layer):
    layer.weight.data = layer.weight.data + 1


def replace(layer):
    layer.weight = nn.Parameter(layer.weight + 1, requires_grad=False)


@MEMORY_CLAUSE
@pytest.mark.parametrize("change", [set_data, replace])
def test_a_parameter_with_other_memory_is_copied_again(target, topology, change):
    wrapper, x = wrapped(target, topology)
    wrapper(x)
    change(wrapper.module[0])
    check_outputs(wrapper, x)


def draw_weights(count, device):
    return [torch.rand(100, 100, device=device) for _ in range(count)]


@MEMORY_CLAUSE
def test_a_parameter_is_copied_again_if_its_address_comes_back(target, topology):
    wrapper, x = wrapped(target, topology, size=100)
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


@SHAPE_CLAUSE
def test_a_parameter_with_another_shape_is_copied_again(target, topology):
    wrapper, x = wrapped(target, topology)
    wrapper(x)
    weight = wrapper.module[0].weight
    weight.data = weight.data.t()  # The memory is the same, and so is the version.
    check_outputs(wrapper, x)


@FLAG_CLAUSE
def test_an_unfrozen_parameter_gets_gradients(target, topology):
    wrapper, x = wrapped(target, topology)
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


@STEP_CLAUSE
@pytest.mark.parametrize("shares", [False, True], ids="shares={}".format)
def test_a_parameter_is_copied_again_after_a_step_of_an_optimizer(target, topology, shares):
    wrapper, x = wrapped(target, topology)
    weight = wrapper.module[0].weight
    wrapper(x)
    # A parameter that was frozen after a backward has a gradient.
    stepped = nn.Parameter(weight.data) if shares else weight
    stepped.grad = torch.ones_like(stepped)
    UnversionedSGD([stepped]).step()
    check_outputs(wrapper, x)


class Counting(nn.Module):
    """A module that adds its frozen weight, and then changes it in a chunk with negative rows."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x):
        y = x + self.weight
        if (x < 0).any():
            self.weight.add_(1)
        return y


@REPLICA_CLAUSE
def test_a_parameter_is_copied_again_after_a_replica_has_changed_its_copy(target, topology):
    wrapper, x = wrapped(target, topology, Counting())
    x[-1] = -1
    for _ in range(3):
        checks.same(wrapper(x), x + 1)


@STREAM_CLAUSE
def test_a_forward_on_another_stream_has_its_own_copies(target, topology):
    capabilities.require("distinct-streams")
    wrapper, x = wrapped(target, topology)
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


@OTHER_CLAUSE
def test_buffers_are_copied_in_each_forward(target, topology):
    module = nn.Sequential(FrozenLayer(), nn.BatchNorm1d(2, affine=False).eval())
    wrapper, x = wrapped(target, topology, module)
    for _ in range(2):
        module[1].running_mean.data.add_(1)
        check_outputs(wrapper, x)


@OTHER_CLAUSE
def test_parameters_that_require_grad_are_copied_in_each_forward(target, topology):
    wrapper, x = wrapped(target, topology)
    for _ in range(2):
        wrapper.module[1].weight.data.add_(1)
        check_outputs(wrapper, x)


@OTHER_CLAUSE
def test_parameters_of_inference_mode_are_copied_in_each_forward(target, topology):
    with torch.inference_mode():
        wrapper, x = wrapped(target, topology)
        for _ in range(2):
            wrapper.module[0].weight.add_(1)
            check_outputs(wrapper, x)


@CHECK_CLAUSE
def test_a_change_that_is_not_detected_is_found_by_comparison(target, topology):
    wrapper, x = wrapped(target, topology, option="check")
    weight = wrapper.module[0].weight
    wrapper(x)
    weight.data.add_(1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"Parameter '0\.weight' differs"):
            wrapper(x)
    weight.mul_(1)  # The version is another one.
    check_outputs(wrapper, x)


@CHECK_CLAUSE
@pytest.mark.parametrize("values", [float("nan"), -0.0, True, 3, 1j], ids=repr)
def test_equal_copies_pass_the_comparison(target, topology, values):
    module = nn.Sequential(FrozenLayer())
    scalar = nn.Parameter(torch.tensor(values), requires_grad=False)
    module.register_parameter("scalar", scalar)
    wrapper, x = wrapped(target, topology, module, option="check")
    for _ in range(2):
        check_outputs(wrapper, x)


@FREED_CLAUSE
@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["deepcopy", "pickle"],
)
def test_duplicates_of_the_wrapper_have_copies_of_their_own(target, topology, duplicate):
    wrapper, x = wrapped(target, topology)
    before = set(vars(wrapper))
    first = weights(wrapper, x)
    wrapper.module[0].seen.clear()
    duplicated = duplicate(wrapper)
    assert set(vars(wrapper)) == set(vars(duplicated)) == before
    assert duplicated.cache_frozen_parameters is True
    assert not addresses(weights(duplicated, x)) & addresses(first)
    checks.same(list(duplicated.state_dict()), list(wrapper.state_dict()))


@FREED_CLAUSE
@pytest.mark.parametrize("end", ["wrapper", "to", "option"])
def test_copies_are_freed(target, topology, end):
    if end == "to":
        capabilities.require("float64")
    with disable_gc():
        wrapper, x = wrapped(target, topology)
        own = wrapper.module[0].weight.data_ptr()
        storages = [
            weakref.ref(weight.untyped_storage())
            for weight in weights(wrapper, x)
            if weight.data_ptr() != own
        ]
        wrapper.module[0].seen.clear()
        assert [storage() is None for storage in storages] == [False] * 2
        if end == "to":
            wrapper.to(torch.float64)
        elif end == "option":
            wrapper.cache_frozen_parameters = False
            wrapper(x)
            wrapper.module[0].seen.clear()
        else:
            del wrapper
        assert [storage() is None for storage in storages] == [True] * 2


@FREED_CLAUSE
def test_reference_has_no_argument_for_frozen_parameters(reference):
    assert not hasattr(reference.data_parallel.DataParallel, "cache_frozen_parameters")
