"""impl.SyncBatchNorm: replicas compute with the statistics of the whole batch."""

import copy
import time

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from impl import DataParallel, SyncBatchNorm
from spec_tests import checks
from spec_tests.checks.numerical_gradients import check_gradients, check_second_gradients
from spec_tests.checks.snapshot import snapshot
from spec_tests.strategies.supported_layers import computed

BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
DEVICES = st.sampled_from([2, 3, 4, ["cpu"] * 3])
MODES = st.lists(st.booleans(), min_size=2, max_size=4)


class Pair(nn.Module):
    """Two layers. The members with the names ``steps`` are called, one after the other."""

    def __init__(self, *steps):
        super().__init__()
        self.first, self.second, self.steps = nn.BatchNorm1d(3), nn.BatchNorm1d(3), steps

    def forward(self, x):
        for step in self.steps:
            x = getattr(self, step)(x)
        return x

    def in_other_order(self, x):
        return self.second(self.first(x)) if x[-1, 0] else self.first(self.second(x))

    def only_without_marks(self, x):
        return x if x[-1, 0] else self.first(x)

    def fail_if_marked(self, x):
        if x[-1, 0]:
            raise KeyError("marked")
        return x

    def sleep_then_fail_if_marked(self, x):
        time.sleep(0.02)
        return self.fail_if_marked(x)

    def in_checkpoint(self, x):
        return checkpoint(self.first, x * self.second.weight, use_reentrant=False)


def wrapped(topology, devices, module, **options):
    """Return a wrapper of a converted module, and its first device."""
    placed = topology.take(devices) if isinstance(devices, int) else devices
    module = SyncBatchNorm.convert_sync_batchnorm(module).to(placed[0])
    return DataParallel(module, placed, **options), placed[0]


def marked(rows, device):
    """Return zeros, but for a mark in the last row, which the last replica gets."""
    x = torch.zeros(rows, 3)
    x[-1, 0] = 1
    return x.to(device)


def step(module, x, parts=3):
    """Return outputs, gradients and buffers after a training step, or the first parts of these."""
    x = x.detach().requires_grad_()
    output = module(x)
    # The gradients of a sum are 0.
    output.backward(torch.arange(output.numel(), device=x.device).view_as(output).sin().to(x))
    gradients = [each.grad for each in [x, *module.parameters()]]
    results = [output.detach(), gradients, list(module.buffers())]
    return snapshot(copy.deepcopy(results[:parts]), {}, strides=False)


def compare(topology, devices, layer, x, steps=2, **options):
    """Compare training steps of the layer alone with those of a wrapper."""
    computed(["batch_norm"])
    tolerance = 0.05 if x.dtype.itemsize < 4 else checks.LAYER
    wrapper, device = wrapped(topology, devices, copy.deepcopy(layer), **options)
    alone, x = copy.deepcopy(layer).to(device), x.to(device)
    for _ in range(steps):
        checks.same(step(wrapper, x), step(alone, x), layer, tolerance=tolerance)
    return wrapper, alone, x


@given(
    rows=st.integers(3, 9),
    dims=st.integers(2, 5),
    devices=DEVICES,
    affine=st.booleans(),
    track=st.booleans(),
    momentum=st.sampled_from([0.1, None, 0.0, 1.0]),
    sizes=st.sampled_from([None, [1, 2, 3, 1], [4, 1, 1, 2]]),
)
def test_training_is_that_of_batch_norm(
    topology, rows, dims, devices, affine, track, momentum, sizes
):
    layer = BATCH_NORMS[dims](2, affine=affine, track_running_stats=track, momentum=momentum)
    x = torch.randn([rows, 2, 3, 2, 2][:dims]) * 3 + 5
    count = devices if isinstance(devices, int) else len(devices)
    compare(topology, devices, layer, x, chunk_sizes=sizes and sizes[:count])


@pytest.mark.parametrize("shape", [(0, 2), (0, 2, 3, 3), (3, 2, 0)], ids=str)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_without_values_keeps_the_running_statistics(topology, shape, momentum):
    layer = BATCH_NORMS[len(shape)](2, momentum=momentum)
    layer.running_mean.fill_(5)
    compare(topology, 2, layer, torch.ones(shape))


@given(rows=st.integers(3, 5), devices=DEVICES, track=st.booleans())
def test_evaluation_is_that_of_batch_norm(topology, rows, devices, track):
    layer = nn.BatchNorm2d(2, track_running_stats=track)
    wrapper, alone, x = compare(topology, devices, layer, torch.randn(rows, 2, 2, 2))
    checks.same(step(wrapper.eval(), x), step(alone.eval(), x), tolerance=checks.LAYER)


@pytest.mark.parametrize(
    ("dtype", "layer_dtype"),
    [
        (torch.float16, torch.float16),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_inputs_may_have_other_dtypes(topology, dtype, layer_dtype):
    layer = nn.BatchNorm2d(2).to(layer_dtype)
    compare(topology, 2, layer, torch.randn(5, 2, 2, 2).to(dtype), steps=1)


def test_a_large_mean_loses_no_digits(topology):
    compare(topology, 2, nn.BatchNorm1d(2).double(), torch.randn(5, 2).double() + 1e6)


def test_outputs_keep_the_memory_format(topology):
    x = torch.randn(6, 2, 3, 3).to(memory_format=torch.channels_last)
    wrapper, _, x = compare(topology, 2, nn.BatchNorm2d(2), x)
    assert wrapper(x).is_contiguous(memory_format=torch.channels_last)


def test_a_layer_may_be_called_twice(topology):
    compare(topology, 3, Pair("first", "first", "second"), torch.randn(7, 3))


def test_kept_replicas_and_frozen_parameters_compute_as_the_module(topology):
    computed(["batch_norm"])
    net = Pair("first", "second").requires_grad_(False)
    wrapper, device = wrapped(topology, 3, net, cache_frozen_parameters=True)
    alone = copy.deepcopy(wrapper.module)
    x = torch.randn(7, 3).to(device)
    with torch.no_grad(), wrapper.hold():
        for _ in range(2):
            checks.same(wrapper(x), alone(x), tolerance=checks.LAYER)
    checks.same(step(wrapper, x), step(alone, x), tolerance=checks.LAYER)


def test_gradients_of_several_steps_are_equal(topology):
    wrapper, device = wrapped(topology, 4, nn.Sequential(*[nn.BatchNorm1d(3)] * 3))
    x = torch.randn(9, 3).to(device)
    found = []
    for _ in range(5):
        wrapper.zero_grad()
        found.append(step(wrapper, x, 2))
    for each in found[1:]:
        checks.same(each, found[0])


@given(rows=st.integers(2, 5), devices=st.sampled_from([[], ["cpu"]]), train=st.booleans())
def test_a_module_that_is_no_replica_computes_as_batch_norm(topology, rows, devices, train):
    layer = nn.BatchNorm2d(2).train(train)
    converted = SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(layer))
    module = DataParallel(converted, devices) if devices else converted
    x = torch.randn(rows, 2, 2, 2)
    checks.same(step(module, x), step(layer, x))


def test_a_single_chunk_is_computed_as_by_batch_norm(topology):
    x = torch.randn(1, 2, 4)
    compare(topology, 3, nn.BatchNorm1d(2), x)
    wrapper, device = wrapped(topology, 3, nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        wrapper(x[:, :, :1].to(device))


@pytest.mark.parametrize("options", [{"in_turn": True}, {}])
def test_a_replica_in_evaluation_waits_for_no_other(topology, options):
    wrapper, device = wrapped(topology, 2, Pair("first", "only_without_marks"), **options)
    x = marked(4, device)
    module = wrapper.eval().module
    checks.same(wrapper(x), torch.cat([module(x[:2]), module(x[2:])]))
    with torch.no_grad():
        checks.same(next(wrapper.map([x])), module(x))


def test_conversion_keeps_the_objects_and_their_state(topology):
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm3d(2)))
    net[1].append(net[0])
    before = [*net.modules()], [*net.parameters()], [*net.state_dict()]
    kind = SyncBatchNorm
    assert kind.convert_sync_batchnorm(net) is net
    for found, expected in zip(net.modules(), before[0], strict=True):
        assert found is expected
        assert isinstance(found, (kind, nn.Sequential))
    assert all(map(lambda x, y: x is y, net.parameters(), before[1]))
    checks.same([*net.state_dict()], before[2])


@pytest.mark.parametrize("kind", [nn.LazyBatchNorm1d, nn.SyncBatchNorm])
def test_other_classes_are_refused_and_nothing_is_converted(kind):
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(kind(*[2][: kind is nn.SyncBatchNorm])))
    with pytest.raises(TypeError, match=rf"'1\.0', a {kind.__name__}"):
        SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(net[0]) is nn.BatchNorm1d


@pytest.mark.parametrize("devices", [2, 3, ["cpu"] * 2])
@pytest.mark.parametrize("fail", ["fail_if_marked", "sleep_then_fail_if_marked"])
def test_the_exception_of_a_replica_is_raised(topology, devices, fail):
    wrapper, device = wrapped(topology, devices, Pair(fail, "first"))
    with pytest.raises(KeyError, match="marked"):
        wrapper(marked(6, device))


@pytest.mark.parametrize("devices", [2, 3, ["cpu"] * 2])
def test_a_replica_that_does_not_call_a_layer_is_an_error(topology, devices):
    count = devices if isinstance(devices, int) else len(devices)
    wrapper, device = wrapped(topology, devices, Pair("only_without_marks"))
    ended = rf"SyncBatchNorm 'first' and replica {count - 1} has ended"
    with pytest.raises(RuntimeError, match=ended):
        wrapper(marked(6, device))


def test_a_forward_after_an_error_has_the_right_output(topology):
    wrapper, device = wrapped(topology, 3, Pair("first", "fail_if_marked", "second"))
    with pytest.raises(KeyError):
        wrapper(marked(6, device))
    checks.same(wrapper(marked(6, device) * 0), torch.zeros(6, 3))


@pytest.mark.parametrize(
    ("step", "options", "text"),
    [
        ("in_other_order", {}, r"in SyncBatchNorm '(first|second)' and replica 1 wai"),
        ("first", {"in_turn": True}, r"SyncBatchNorm .* one after the other.*in_turn"),
    ],
)
def test_replicas_that_do_not_compute_a_layer_together_are_refused(topology, step, options, text):
    wrapper, device = wrapped(topology, 2, Pair(step), **options)
    with pytest.raises(RuntimeError, match=text):
        wrapper(marked(4, device))


@pytest.mark.parametrize("devices", [1, 2])
def test_training_in_map_is_refused(topology, devices):
    wrapper, device = wrapped(topology, devices, Pair("first"))
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"SyncBatchNorm .*map.*eval"):
        list(wrapper.map([marked(4, device)]))


def test_a_forward_that_backward_repeats_is_refused(topology):
    wrapper, device = wrapped(topology, 2, Pair("in_checkpoint"))
    with pytest.raises(RuntimeError, match=r"SyncBatchNorm .*checkpoint"):
        wrapper(marked(4, device)).sum().backward()


@pytest.mark.parametrize(("devices", "affine"), [(2, True), (3, False), (["cpu"] * 2, True)])
def test_gradients_can_be_differentiated(topology, devices, affine):
    layer = nn.BatchNorm1d(2, affine=affine).double()
    wrapper, device = wrapped(topology, devices, layer)
    x = torch.randn(5, 2, dtype=torch.double, device=device, requires_grad=True)
    check_gradients(wrapper, [x])
    check_second_gradients(wrapper, [x])


class InModes(nn.Module):
    """Batch norm in the grad mode that the first column of a chunk names, after a delay."""

    def __init__(self, late):
        super().__init__()
        self.norm, self.late = SyncBatchNorm(3), late

    def forward(self, x):
        index, mode = x[0, :2].tolist()
        time.sleep(0.01 * (index == self.late))
        with torch.set_grad_enabled(bool(mode)):
            return self.norm(x)


def rows_of(modes):
    """Return two rows for each replica: its index, its mode, and another number."""
    rows = [[index, mode, index % 3 + row] for index, mode in enumerate(modes) for row in range(2)]
    return torch.tensor(rows, dtype=torch.float32)


@pytest.mark.parametrize("on_cpu", [True, False], ids=["CPU replicas", "devices"])
@given(modes=MODES.filter(lambda modes: len({*modes}) == 2), late=st.integers(0, 3))
@example(modes=[True, False], late=0)
@example(modes=[True, False], late=1)
def test_replicas_in_different_grad_modes_are_refused(topology, on_cpu, modes, late):
    devices = ["cpu"] * len(modes) if on_cpu else topology.take(len(modes))
    wrapper = DataParallel(InModes(late).to(devices[0]), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(rows_of(modes).to(devices[0]))
    on, off = ([i for i, mode in enumerate(modes) if mode is each] for each in (True, False))
    text = f"SyncBatchNorm 'norm' .*grad mode is on in replicas {on}, and off in replicas {off}"
    assert caught.match(text.replace("[", r"\[").replace("]", r"\]"))
    assert "in replica 0 on device" in str(caught.value)


@given(mode=st.booleans(), count=st.integers(2, 4), late=st.integers(0, 3))
def test_replicas_may_change_the_grad_mode_together(topology, mode, count, late):
    devices = topology.take(count)
    net = InModes(late).to(devices[0])
    alone, x = copy.deepcopy(net), rows_of([mode] * count).to(devices[0])
    outputs = DataParallel(net, devices)(x), alone(x)
    assert [each.requires_grad for each in outputs] == [mode] * 2
    assert torch.allclose(*outputs, atol=checks.LAYER)
