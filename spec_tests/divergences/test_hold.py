"""DataParallel.hold keeps replicas for several forwards. The reference has no hold: DP-4."""

import copy
import pickle
import threading
import weakref
from contextlib import nullcontext

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from spec_tests.divergences.hold_changes import CHANGES, reorder_devices
from spec_tests.divergences.hold_sequences import (
    LATE_CHANGE,
    LATE_GRADIENTS,
    Scaled,
    forward_sequences,
    run_with_and_without_hold,
)
from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.leaks import disable_gc, wait_until_freed
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities
from spec_tests.strategies.probe_modules import OrdinalColumn, StateUpdater

HELD_CLAUSE = clause("divergences.DP-4.replicas-are-held")
SAME_CLAUSE = clause("divergences.DP-4.results-are-the-same")
GRAD_CLAUSE = clause("divergences.DP-4.grad-mode-is-refused")
CHANGED_CLAUSE = clause("divergences.DP-4.changes-are-refused")
STATE_CLAUSE = clause("divergences.DP-4.no-part-of-the-state")
FREED_CLAUSE = clause("divergences.DP-4.freed-at-the-end")
SINGLE_CLAUSE = clause("divergences.DP-4.one-device")


def network():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())).eval()


def recording_data_parallel(target, created):
    """Return a DataParallel class whose replicate appends devices and weakrefs to ``created``."""

    class Recording(target.data_parallel.DataParallel):
        def replicate(self, module, device_ids):
            replicas = super().replicate(module, device_ids)
            created.append((list(device_ids), [weakref.ref(replica) for replica in replicas]))
            return replicas

    return Recording


def wrapped(target, topology, created=None, module=None, devices=3):
    placed = topology.take(devices)
    kind = (
        target.data_parallel.DataParallel
        if created is None
        else recording_data_parallel(target, created)
    )
    return kind((module or network()).to(placed[0]), placed), torch.rand(6, 2).to(placed[0])


@HELD_CLAUSE
@pytest.mark.parametrize("rows", [1, 2, 5], ids="rows={}".format)
def test_forwards_in_a_hold_block_share_one_set_of_replicas(target, topology, rows):
    created = []
    module, x = wrapped(target, topology, created)
    with torch.no_grad(), module.hold():
        assert not created  # The first forward creates the replicas.
        for batch in (x[:rows], x, x[:1], x):
            checks.same(module(batch), module.module(batch), tolerance=checks.LAYER)
    assert [devices for devices, _ in created] == [module.device_ids]
    with torch.no_grad():
        module(x)
    assert len(created) == 2


@HELD_CLAUSE
def test_nested_hold_blocks_share_one_set_of_replicas(target, topology):
    created = []
    module, x = wrapped(target, topology, created)
    with torch.no_grad(), module.hold():
        for _ in range(2):
            with module.hold():
                module(x)
        module(x)
    assert len(created) == 1


@HELD_CLAUSE
def test_each_hold_block_has_its_own_replicas(target, topology):
    created = []
    module, x = wrapped(target, topology, created)
    for factor in (1.0, 2.0):
        with torch.no_grad(), module.hold():
            module.module[0].weight.mul_(factor)
            checks.same(module(x), module.module(x), tolerance=checks.LAYER)
    assert len(created) == 2


@HELD_CLAUSE
def test_threads_share_the_held_replicas(target, topology):
    created, found = [], []
    module, x = wrapped(target, topology, created)
    barrier = threading.Barrier(4, timeout=20)

    def run():
        barrier.wait()
        with torch.no_grad():
            found.extend(module(x) for _ in range(5))

    with module.hold():
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(created) == 1
    for output in found:
        checks.same(output, module.module(x).detach(), tolerance=checks.LAYER)
    assert len(found) == 20


def _refuse_negative(_, args):
    if bool((args[0] < 0).any()):
        raise ValueError("a negative number")


@HELD_CLAUSE
def test_a_failed_forward_keeps_the_replicas(target, topology):
    created = []
    module, x = wrapped(target, topology, created)
    module.module.register_forward_pre_hook(_refuse_negative)
    with torch.no_grad(), module.hold():
        module(x)
        with pytest.raises(ValueError, match="in replica 0"):
            module(-x)
        module(x)
    assert len(created) == 1


@HELD_CLAUSE
def test_the_next_forward_retries_a_failed_replicate(target, topology):
    topology.require(2)
    module, x = wrapped(target, topology)
    other_device = topology.device(1)
    with torch.no_grad(), module.hold():
        module.module.to(other_device)
        with pytest.raises(RuntimeError, match="module must have its parameters"):
            module(x)
        module.module.to(x.device)
        checks.same(module(x), module.module(x), tolerance=checks.LAYER)


@HELD_CLAUSE
def test_a_forward_on_another_stream_has_its_own_replicas(target, topology):
    capabilities.require("distinct-streams")
    created = []
    module, x = wrapped(target, topology, created)
    topology.synchronize()
    with torch.no_grad(), module.hold():
        for stream in (None, torch.Stream(topology.device(1)), None):
            with stream or nullcontext():
                found = module(x)
            topology.synchronize()
            checks.same(found, module.module(x), tolerance=checks.LAYER)
    assert len(created) == 2


@SAME_CLAUSE
@given(sequence=forward_sequences())
@example(sequence=LATE_CHANGE)
@example(sequence=LATE_GRADIENTS)
def test_held_replicas_return_the_same_as_new_replicas(target, topology, sequence):
    held, fresh = run_with_and_without_hold(sequence, target, topology)
    checks.same(held, fresh, sequence)


@SAME_CLAUSE
@pytest.mark.parametrize("inference", [False, True], ids="inference={}".format)
def test_each_forward_starts_with_the_buffers_of_the_module(target, topology, inference):
    module, x = wrapped(target, topology, module=StateUpdater())
    with torch.no_grad(), module.hold():
        for count in (1, 2, 3):
            with torch.inference_mode() if inference else torch.no_grad():
                module(x)
            assert module.module.last.item() == 0
            assert module.module.seen.item() == pytest.approx(count * x[:2].sum().item())


class Remembering(nn.Module):
    """A module that stores its input in a buffer. It returns whether there was a buffer before."""

    def __init__(self, registered):
        super().__init__()
        self.register_buffer("factor", torch.ones(1))
        if registered:
            self.register_buffer("last", None)

    def forward(self, x):
        before = getattr(self, "last", None)
        if hasattr(self, "last"):
            self.last = x
        else:
            self.register_buffer("last", x)
        return torch.full_like(x, before is not None)


@SAME_CLAUSE
@pytest.mark.parametrize("registered", [False, True], ids="registered={}".format)
@pytest.mark.parametrize("nested", [False, True], ids="nested={}".format)
def test_each_forward_starts_without_the_buffers_of_the_last_one(
    target, topology, registered, nested
):
    module = Remembering(registered)
    net, x = wrapped(target, topology, module=nn.Sequential(module) if nested else module)
    with torch.no_grad(), net.hold():
        for rows in (6, 1, 6, 6):
            checks.same(net(x[:rows]), torch.zeros_like(x[:rows]))
    assert getattr(module, "last", None) is None


class Normalizing(nn.Module):
    """A module that adds its statistics to each row, and updates them by ``batch_norm``."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("variance", torch.ones(2))

    def forward(self, x):
        result = x + self.mean + self.variance
        functional.batch_norm(x, self.mean, self.variance, training=True)
        return result


@SAME_CLAUSE
def test_each_forward_starts_with_the_statistics_of_the_module(target, topology):
    net, _ = wrapped(target, topology, module=Normalizing())
    x = torch.arange(12.0).to(topology.device(0)).reshape(6, 2)
    with torch.no_grad(), net.hold():
        for _ in range(3):
            expected = x + net.module.mean + net.module.variance
            checks.same(net(x), expected)


@SAME_CLAUSE
def test_held_replicas_get_changed_buffers_of_inference_mode(target, topology):
    with torch.inference_mode():
        module, x = wrapped(target, topology, module=OrdinalColumn().to(topology.device(0)))
        with module.hold():
            for offset in (0.0, 3.0, 4.0):
                module.module.offset.fill_(offset)
                checks.same(module(x)[-1, -1].item(), offset + module.device_ids[-1])


@GRAD_CLAUSE
def test_a_forward_in_grad_mode_is_refused_inside_hold(target, topology):
    created = []
    module, x = wrapped(target, topology, created)
    with module.hold():
        with pytest.raises(RuntimeError, match=r"under torch\.no_grad\(\)"):
            module(x)
        assert not created
        with torch.no_grad():
            module(x)
        with pytest.raises(RuntimeError, match=r"under torch\.no_grad\(\)"):
            module(x)
    assert module(x).requires_grad


@CHANGED_CLAUSE
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_inside_hold_raises_an_error_that_names_it(target, topology, change):
    if change is reorder_devices:
        topology.require(2)
    module, x = wrapped(target, topology)
    with torch.no_grad():
        with module.hold():
            module(x)
            pattern = change(module)
            for _ in range(2):
                with pytest.raises(RuntimeError, match=pattern):
                    module(x)
        if len(module.device_ids) == 3:
            checks.same(module.eval()(x), module.module(x), tolerance=checks.LAYER)


@CHANGED_CLAUSE
@pytest.mark.parametrize("index", range(4))
def test_a_changed_parameter_is_named_in_the_error(target, topology, index):
    module, x = wrapped(target, topology)
    name, parameter = [*module.module.named_parameters()][index]
    with torch.inference_mode(), module.hold():
        module(x)
        parameter.add_(1)
        with pytest.raises(RuntimeError, match=f"arameter '{name}' has changed"):
            module(x)


@STATE_CLAUSE
@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["deepcopy", "pickle"],
)
def test_copies_of_the_wrapper_hold_no_replicas(target, topology, duplicate):
    module, x = wrapped(target, topology)
    before = set(module.__dict__)
    with torch.no_grad(), module.hold():
        module(x)
        copied = duplicate(module)
        assert set(module.__dict__) == set(copied.__dict__) == before
        assert list(copied.state_dict()) == list(module.state_dict())
        copied.module[0].weight.zero_()
        checks.same(copied(x), copied.module(x), tolerance=checks.LAYER)
        checks.same(module(x), module.module(x), tolerance=checks.LAYER)
    assert copied(x).requires_grad


@FREED_CLAUSE
@pytest.mark.parametrize("fails", [False, True], ids="fails={}".format)
def test_replicas_are_freed_at_the_end_of_a_hold_block(target, topology, fails):
    created = []
    module, x = wrapped(target, topology, created)
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
        assert wait_until_freed(created[0][1])


@FREED_CLAUSE
def test_device_memory_is_freed_at_the_end_of_a_hold_block(target, topology):
    module, x = wrapped(target, topology, module=nn.Linear(2, 4096))
    with torch.no_grad():
        module(x)  # In the first forward, libraries allocate memory that they keep.
        before = topology.memory_allocated()
        with module.hold():
            module(x)
            size = module.module.weight.nbytes + module.module.bias.nbytes
            assert topology.memory_allocated() - before >= 1.9 * size
        # A few hundred bytes of earlier tests may be freed meanwhile.
        assert topology.memory_allocated() == pytest.approx(before, abs=size / 10)


@FREED_CLAUSE
def test_the_wrapper_can_be_freed_after_a_hold_block(target, topology):
    with disable_gc():
        module, x = wrapped(target, topology)
        with torch.no_grad(), module.hold():
            module(x)
        reference = weakref.ref(module)
        del module
        assert reference() is None


class CallCounter(nn.Linear):
    """A linear layer that counts its calls in an attribute; every output element is the count."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * 0 + self.calls


@HELD_CLAUSE
def test_attributes_set_in_forward_persist_inside_hold(target, topology):
    module, x = wrapped(target, topology, module=CallCounter(2, 1))
    with torch.no_grad():
        with module.hold():
            found = [module(x).unique().tolist() for _ in range(3)]
        assert module(x).unique().tolist() == [1.0]
    assert found == [[1.0], [2.0], [3.0]]
    assert module.module.calls == 0


@SINGLE_CLAUSE
@given(grad=st.booleans())
def test_with_one_device_hold_does_nothing(target, topology, grad):
    module, x = wrapped(target, topology, module=Scaled(), devices=1)
    with torch.set_grad_enabled(grad), module.hold():
        checks.same(module(x).detach(), x)
        with torch.no_grad():
            module.module.weight.fill_(2.0)
        module.train()
        checks.same(module(x).detach(), 2 * x)


@HELD_CLAUSE
def test_reference_has_no_hold_method(reference):
    assert not hasattr(reference.data_parallel.DataParallel, "hold")
