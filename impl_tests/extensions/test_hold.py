"""impl._replica_cache: replicas that are kept for several forwards."""

import copy
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import impl
from impl_tests.extensions.kept_modules import Doubled, recording_data_parallel, wrapped
from spec_tests import checks
from spec_tests.checks.casts import CastingLinear, cast_changed_parameters
from spec_tests.checks.compile_backends import CountingBackend
from spec_tests.checks.leaks import check_freed, disable_gc
from spec_tests.machine import capabilities
from spec_tests.strategies.compiled_modules import COMPILATIONS
from spec_tests.strategies.small_modules import Calls


@pytest.mark.parametrize("rows", [1, 2, 5], ids="rows={}".format)
def test_forwards_in_a_hold_block_share_one_set_of_replicas(topology, rows):
    created = []
    module, x = wrapped(topology, created)
    with torch.no_grad(), module.hold():
        assert not created  # The first forward creates the replicas.
        for batch in (x[:rows], x, x[:1], x):
            checks.same(module(batch), module.module(batch), tolerance=checks.LAYER)
    assert [devices for devices, _ in created] == [module.device_ids]
    with torch.no_grad():
        module(x)
    assert len(created) == 2


def _refuse_negative(_, args):
    if bool((args[0] < 0).any()):
        raise ValueError("a negative number")


def test_a_failed_forward_keeps_the_replicas(topology):
    created = []
    module, x = wrapped(topology, created)
    module.module.register_forward_pre_hook(_refuse_negative)
    with torch.no_grad(), module.hold():
        module(x)
        with pytest.raises(ValueError, match="in replica 0"):
            module(-x)
        module(x)
    assert len(created) == 1


def test_the_next_forward_retries_a_failed_replicate(topology):
    topology.require(distinct=2)
    net, x = wrapped(topology)
    norm, first = net.module[1][0], topology.device(0)
    second = next(device for device in topology.devices if device != first)
    with torch.no_grad(), net.hold():
        net(x)
        norm.running_mean = norm.running_mean.to(second)
        with pytest.raises(RuntimeError, match=f"found one of them on device: {second}"):
            net(x)
        norm.running_mean = norm.running_mean.to(first)
        checks.same(net(x), net.module(x), tolerance=checks.LAYER)


def test_a_forward_on_another_stream_has_its_own_replicas(topology):
    capabilities.require("distinct-streams")
    created = []
    module, x = wrapped(topology, created)
    topology.synchronize()
    with torch.no_grad(), module.hold():
        for stream in (None, torch.Stream(topology.device(1)), None):
            with stream or nullcontext():
                found = module(x)
            topology.synchronize()
            checks.same(found, module.module(x), tolerance=checks.LAYER)
    assert len(created) == 2


def test_a_forward_in_grad_mode_is_refused_inside_hold(topology):
    created = []
    module, x = wrapped(topology, created)
    with module.hold():
        with pytest.raises(RuntimeError, match=r"under torch\.no_grad\(\)"):
            module(x)
        assert not created
        with torch.no_grad():
            module(x)
        with pytest.raises(RuntimeError, match=r"under torch\.no_grad\(\)"):
            module(x)
    assert module(x).requires_grad


@pytest.mark.parametrize("slots", [(0, 2, 1), (0, 1)])
def test_a_forward_on_other_devices_builds_new_replicas(topology, slots):
    topology.require(3)
    created = []
    net, x = wrapped(topology, created)
    with torch.no_grad(), net.hold():
        net(x)
        net.device_ids = [net.device_ids[slot] for slot in slots]
        for _ in range(2):
            checks.same(net(x), net.module(x), tolerance=checks.LAYER)
    assert [devices for devices, _ in created][1:] == [net.device_ids]


def test_a_forward_after_a_change_that_replicas_see_builds_no_replicas(topology):
    created = []
    net, x = wrapped(topology, created)
    net.module.settings = {"scale": [1.0]}
    with torch.no_grad(), net.hold():
        for _ in range(2):
            checks.same(net(x), net.module(x), tolerance=checks.LAYER)
            net.module.settings["new"] = 1.0
            net.module.settings["scale"].append(2.0)
    assert len(created) == 1


@pytest.mark.parametrize("kind", ["module", "parameter", "buffer"])
def test_a_renamed_member_builds_new_replicas(topology, kind):
    class Named(nn.Module):
        def forward(self, x):
            return x + sum(hasattr(self, name) for name in ("first", "second"))

    created = []
    net, x = wrapped(topology, created, Named())
    members = getattr(net.module, f"_{kind}s")
    members["other"] = nn.ReLU() if kind == "module" else nn.Parameter(torch.ones(1).to(x))
    with torch.no_grad(), net.hold():
        checks.same(net(x), x)
        members["first"] = members.pop("other")
        checks.same(net(x), x + 1)
    assert len(created) == 2


class Assigning(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("shift", torch.zeros(2))

    def __setattr__(self, name, value):
        super().__setattr__(name, value)

    def forward(self, x):
        return super().forward(x) + self.shift


def test_a_changed_buffer_of_a_module_that_sets_attributes_itself_is_seen(topology):
    net, x = wrapped(topology, module=Assigning())
    with torch.no_grad(), net.hold():
        for _ in range(2):
            checks.same(net(x), net.module(x), tolerance=checks.LAYER)
            net.module.shift.add_(1)


def scripted():
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        return torch.jit.script(nn.Linear(2, 2))


def sparse():
    module = nn.Linear(2, 2)
    module.register_parameter("sparse", nn.Parameter(torch.eye(2).to_sparse()))
    return module


def with_gaps():
    module = nn.Linear(2, 2)
    module.weight.data = torch.ones(2, 4)[:, ::2]
    return module


def with_inference_buffer():
    module = nn.BatchNorm1d(2).eval()
    with torch.inference_mode():
        module.running_mean = torch.ones(2)
    return module


class Slotted(nn.Linear):
    __slots__ = ("slot",)


BUILDS = [scripted, sparse, with_gaps, with_inference_buffer, lambda: Slotted(2, 2)]


@pytest.mark.parametrize("build", BUILDS)
def test_a_module_whose_changes_cannot_be_seen_is_replicated_in_each_forward(build):
    created = []
    net = recording_data_parallel(created)(build(), ["cpu"] * 2)
    x = torch.ones(4, 2)
    with torch.no_grad(), net.hold():
        for count in (1, 2):
            checks.same(net(x), net.module(x), tolerance=checks.LAYER)
            assert len(created) == count


def test_batch_norm_in_training_is_replicated_in_each_forward(topology):
    created = []
    net, x = wrapped(topology, created, nn.BatchNorm1d(2))
    net.module.num_batches_tracked = None  # So that no version increases.
    original = copy.deepcopy(net.module)
    with torch.no_grad(), net.hold():
        for count in (1, 2):
            net(x)
            original(x[:2])  # The rows of the first replica.
            assert len(created) == count
    checks.same(net.module.running_mean, original.running_mean, tolerance=checks.LAYER)


def test_a_dispatch_mode_gets_replicas_of_its_own():
    net, x = impl.DataParallel(nn.Linear(2, 2), ["cpu"] * 2), torch.ones(4, 2)
    with torch.no_grad(), net.hold():
        with Doubled():
            net(x)
        checks.same(net(x), net.module(x), tolerance=checks.LAYER)


def change_in_silence(net, x, change=lambda weight: weight.add_(1)):
    """Run three forwards in a block, and change the weight in silence before the last one."""
    with torch.no_grad(), net.hold(), net.hold():
        net(x)
        net.module[0].bias.add_(1)
        net(x)
        change(net.module[0].weight.data)
        net(x)


HIDDEN = pytest.raises(RuntimeError, match=r"'0\.weight' has changed .* since forward 3 of")


def test_a_hidden_change_of_one_element_is_an_error(topology):
    net, x = wrapped(topology, module=nn.Sequential(nn.Linear(2, 64)))
    with HIDDEN:  # A sample of 128 elements has each eighth one.
        change_in_silence(net, x, lambda weight: weight[2, 1].add_(1))


@pytest.mark.parametrize("values", [float("nan"), -0.0, 1j], ids=repr)
def test_equal_bits_are_no_change(topology, values):
    module = nn.Linear(2, 2)
    module.extra = nn.Parameter(torch.full((3,), values))
    net, x = wrapped(topology, module=module)
    with torch.no_grad(), net.hold():
        net(x)
        module.extra.data.copy_(module.extra.clone())
        net(x)


def test_a_hidden_change_after_the_last_forward_is_no_error(topology):
    net, x = wrapped(topology)
    with torch.no_grad(), net.hold():
        net(x)
        net(x)
        net.module[0].weight.data.add_(1)


def test_a_hidden_change_warns_if_an_exception_ends_the_block(topology):
    def fail():
        with net.hold():
            change_in_silence(net, x)
            raise KeyError

    net, x = wrapped(topology)
    with pytest.warns(RuntimeWarning, match=r"'0\.weight' has changed"), pytest.raises(KeyError):
        fail()


def test_a_forward_with_kept_replicas_does_not_wait_for_a_device(topology, monkeypatch):
    net, x = wrapped(topology)
    with torch.no_grad(), net.hold():
        net(x)
        with monkeypatch.context() as patch:
            for name in ("item", "cpu", "tolist", "__bool__"):
                patch.setattr(torch.Tensor, name, refuse)
            patch.setattr(torch, "equal", refuse)
            net(x)


def refuse(*_):
    raise AssertionError


@pytest.mark.parametrize("fails", [False, True], ids="fails={}".format)
def test_replicas_are_freed_at_the_end_of_a_hold_block(topology, fails):
    created = []
    module, x = wrapped(topology, created)
    with disable_gc():
        try:
            with torch.no_grad(), module.hold(), module.hold():
                module(x)
                alive = [reference() is not None for reference in created[0][1]]
                if fails:
                    raise KeyError
        except KeyError:
            pass
        assert alive == [True] * 3
        check_freed(created[0][1])


def test_attributes_set_in_forward_persist_inside_hold(topology):
    def count(module, x):
        module.calls += 1
        return x * 0 + module.calls

    module, x = wrapped(topology, module=Calls(count, calls=0))
    with torch.no_grad():
        with module.hold():
            found = [module(x).unique().tolist() for _ in range(3)]
        assert module(x).unique().tolist() == [1.0]
    assert found == [[1.0], [2.0], [3.0]]
    assert module.module.calls == 0


def scaling():
    return Calls(lambda module, x: x * module.weight, weight=nn.Parameter(torch.ones(1)))


@given(grad=st.booleans())
def test_with_one_device_hold_does_nothing(topology, grad):
    module, x = wrapped(topology, module=scaling(), devices=1)
    with torch.set_grad_enabled(grad), module.hold():
        checks.same(module(x).detach(), x)
        with torch.no_grad():
            module.module.weight.fill_(2.0)
        module.train()
        checks.same(module(x).detach(), 2 * x)


@pytest.mark.parametrize("earlier", ["caller", "forward"])
def test_kept_replicas_cast_the_current_parameters(topology, earlier):
    net = impl.DataParallel(CastingLinear(topology.device(0)), topology.take(2))
    for found, expected in cast_changed_parameters(net, earlier, net.hold):
        checks.same(found, expected)


def test_a_compiled_module_without_a_length_is_kept():
    net = torch.compile(nn.Linear(2, 3), backend="eager")
    wrapper = impl.DataParallel(net, ["cpu"] * 2)
    with torch.no_grad(), wrapper.hold():
        outputs = [wrapper(torch.ones(4, 2)) for _ in range(2)]
    assert [output.shape for output in outputs] == [(4, 3)] * 2


@pytest.mark.parametrize("compilation", COMPILATIONS)
def test_kept_replicas_of_compiled_modules_run_compiled_code(topology, compilation):
    topology.require(3)  # Without grad mode, replica 0 differs from a second one on its device.
    torch.compiler.reset()  # Code of other tests counts towards PyTorch's recompilation limit.
    backend = CountingBackend()
    layer = nn.Sequential(nn.Linear(4, 4), scaling())
    module = COMPILATIONS[compilation](layer, backend)
    placed = topology.take(3)
    parallel, x = impl.DataParallel(module.to(placed[0]), placed), torch.rand(6, 4).to(placed[0])
    with torch.no_grad(), parallel.hold():
        found = torch.stack([parallel(x) for _ in range(3)])
        with torch.compiler.set_stance("force_eager"):
            expected = torch.stack([parallel.module(x)] * 3)
    checks.same(found, expected, tolerance=checks.LAYER)
    assert len(backend.devices) == len(set(placed))
