"""Replicas that are held while a block lasts, which the reference cannot do: DP-4."""

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

from spec_tests.divergences.held import (
    LATE_CHANGE,
    LATE_GRADIENTS,
    Cached,
    held_and_not,
    sequences,
)
from spec_tests.divergences.held_changes import CHANGES
from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.leaks import all_freed, no_garbage_collection
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.topology import not_run
from spec_tests.strategies.probe_modules import Placed, Remembering

HELD = clause("divergences.DP-4.replicas-are-held")
SAME = clause("divergences.DP-4.results-are-the-same")
GRAD = clause("divergences.DP-4.grad-mode-is-refused")
CHANGED = clause("divergences.DP-4.changes-are-refused")
STATE = clause("divergences.DP-4.no-part-of-the-state")
FREED = clause("divergences.DP-4.freed-at-the-end")
SINGLE = clause("divergences.DP-4.one-device")


def net():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())).eval()


def counting(target, made):
    """A wrapper that notes the devices of each ``replicate``, and weakly what it has made."""

    class Counting(target.data_parallel.DataParallel):
        def replicate(self, module, device_ids):
            replicas = super().replicate(module, device_ids)
            made.append((list(device_ids), [weakref.ref(each) for each in replicas]))
            return replicas

    return Counting


def wrapped(target, topology, made=None, module=None, devices=3):
    placed = topology.take(devices)
    kind = target.data_parallel.DataParallel if made is None else counting(target, made)
    return kind((module or net()).to(placed[0]), placed), torch.rand(6, 2, device=placed[0])


@HELD
@pytest.mark.parametrize("rows", [1, 2, 5], ids="rows={}".format)
def test_one_set_of_replicas_serves_a_whole_block(target, topology, rows):
    made = []
    module, x = wrapped(target, topology, made)
    with torch.no_grad(), module.hold():
        assert not made  # Not before they are used.
        for batch in (x[:rows], x, x[:1], x):
            checks.same(module(batch), module.module(batch), tolerance=checks.LAYER)
    assert [devices for devices, _ in made] == [module.device_ids]
    with torch.no_grad():
        module(x)
    assert len(made) == 2


@HELD
def test_the_outermost_block_holds(target, topology):
    made = []
    module, x = wrapped(target, topology, made)
    with torch.no_grad(), module.hold():
        for _ in range(2):
            with module.hold():
                module(x)
        module(x)
    assert len(made) == 1


@HELD
def test_each_block_has_replicas_of_its_own(target, topology):
    made = []
    module, x = wrapped(target, topology, made)
    for factor in (1.0, 2.0):
        with torch.no_grad(), module.hold():
            module.module[0].weight.mul_(factor)
            checks.same(module(x), module.module(x), tolerance=checks.LAYER)
    assert len(made) == 2


@HELD
def test_threads_share_the_replicas(target, topology):
    made, found = [], []
    module, x = wrapped(target, topology, made)
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
    assert len(made) == 1
    for each in found:
        checks.same(each, module.module(x).detach(), tolerance=checks.LAYER)
    assert len(found) == 20


@HELD
def test_a_forward_that_fails_leaves_the_replicas_in_place(target, topology):
    made = []
    module, x = wrapped(target, topology, made)
    with torch.no_grad(), module.hold():
        for batch in (x, x[:, :1], x):
            if batch.shape == x.shape:
                module(batch)
            else:
                with pytest.raises(RuntimeError, match="in replica 0"):
                    module(batch)
    assert len(made) == 1


@HELD
def test_replicas_that_could_not_be_made_are_made_by_the_next_forward(target, topology):
    module, x = wrapped(target, topology)
    far = topology.device(1)
    with torch.no_grad(), module.hold():
        module.module.to(far)
        with pytest.raises(RuntimeError, match="module must have its parameters"):
            module(x)
        module.module.to(x.device)
        checks.same(module(x), module.module(x), tolerance=checks.LAYER)


@HELD
def test_a_forward_on_another_stream_waits_for_no_copies(target, topology):
    made = []
    module, x = wrapped(target, topology, made)
    topology.synchronize()
    with torch.no_grad(), module.hold():
        for stream in (None, torch.Stream(topology.device(1)), None):
            with stream or nullcontext():
                found = module(x)
            topology.synchronize()
            checks.same(found, module.module(x), tolerance=checks.LAYER)
    assert len(made) == 2


@SAME
@given(sequence=sequences())
@example(sequence=LATE_CHANGE)
@example(sequence=LATE_GRADIENTS)
def test_held_replicas_compute_what_new_ones_do(target, topology, sequence):
    held, fresh = held_and_not(sequence, target, topology)
    checks.same(held, fresh, sequence)


@SAME
@pytest.mark.parametrize("inference", [False, True], ids="inference={}".format)
def test_buffers_that_a_replica_has_replaced_are_the_modules_again(target, topology, inference):
    module, x = wrapped(target, topology, module=Remembering())
    with torch.no_grad(), module.hold():
        for count in (1, 2, 3):
            with torch.inference_mode() if inference else torch.no_grad():
                module(x)
            assert module.module.last.item() == 0
            assert module.module.seen.item() == pytest.approx(count * x[:2].sum().item())


@SAME
def test_buffers_made_in_inference_mode_are_brought_up_to_date(target, topology):
    with torch.inference_mode():
        module, x = wrapped(target, topology, module=Placed().to(topology.device(0)))
        with module.hold():
            for offset in (0.0, 3.0, 4.0):
                module.module.offset.fill_(offset)
                checks.same(module(x)[-1, -1].item(), offset + module.device_ids[-1])


@GRAD
def test_grad_mode_is_refused(target, topology):
    made = []
    module, x = wrapped(target, topology, made)
    with module.hold():
        with pytest.raises(RuntimeError, match=r"under torch\.no_grad\(\)"):
            module(x)
        assert not made
        with torch.no_grad():
            module(x)
        with pytest.raises(RuntimeError, match=r"under torch\.no_grad\(\)"):
            module(x)
    assert module(x).requires_grad


@CHANGED
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_refused_by_name(target, topology, change):
    module, x = wrapped(target, topology)
    with torch.no_grad():
        with module.hold():
            module(x)
            text = change(module)
            for _ in range(2):
                with pytest.raises(RuntimeError, match=text):
                    module(x)
        if len(module.device_ids) == 3:
            checks.same(module.eval()(x), module.module(x), tolerance=checks.LAYER)


@CHANGED
@pytest.mark.parametrize("index", range(4))
def test_every_parameter_is_looked_at(target, topology, index):
    module, x = wrapped(target, topology)
    name, parameter = [*module.module.named_parameters()][index]
    with torch.inference_mode(), module.hold():
        module(x)
        parameter.add_(1)
        with pytest.raises(RuntimeError, match=f"arameter '{name}' has changed"):
            module(x)


@STATE
@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["deepcopy", "pickle"],
)
def test_copies_hold_nothing(target, topology, duplicate):
    module, x = wrapped(target, topology)
    before = set(module.__dict__)
    with torch.no_grad(), module.hold():
        module(x)
        twin = duplicate(module)
        assert set(module.__dict__) == set(twin.__dict__) == before
        assert list(twin.state_dict()) == list(module.state_dict())
        twin.module[0].weight.zero_()
        checks.same(twin(x), twin.module(x), tolerance=checks.LAYER)
        checks.same(module(x), module.module(x), tolerance=checks.LAYER)
    assert twin(x).requires_grad


@FREED
@pytest.mark.parametrize("fails", [False, True], ids="fails={}".format)
def test_nothing_is_held_after_the_block(target, topology, fails):
    made = []
    module, x = wrapped(target, topology, made)
    with no_garbage_collection():
        try:
            with torch.no_grad(), module.hold(), module.hold():
                module(x)
                alive = [each() is not None for each in made[0][1]]
                if fails:
                    raise KeyError
        except KeyError:
            pass
        assert alive == [True] * 3
        assert all_freed(made[0][1])


@FREED
def test_the_memory_of_the_devices_is_free_after_the_block(target, topology):
    memory = getattr(torch, topology.accelerator)
    if not hasattr(memory, "memory_allocated"):
        not_run(f"torch.{topology.accelerator} does not count memory")
    module, x = wrapped(target, topology, module=nn.Linear(2, 4096))

    def used():
        topology.synchronize()
        return sum(memory.memory_allocated(device) for device in set(topology.devices))

    with torch.no_grad():
        module(x)  # What libraries allocate for good when they are first used is none of ours.
        before = used()
        with module.hold():
            module(x)
            size = module.module.weight.nbytes + module.module.bias.nbytes
            assert used() - before >= 2 * size
        assert used() == before


@FREED
def test_a_wrapper_can_go_after_the_block(target, topology):
    with no_garbage_collection():
        module, x = wrapped(target, topology)
        with torch.no_grad(), module.hold():
            module(x)
        gone = weakref.ref(module)
        del module
        assert gone() is None


class Attributes(nn.Linear):
    """Counts its calls in an attribute, and adds the count."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * 0 + self.calls


@HELD
def test_what_a_forward_writes_stays_with_the_replica_for_the_block(target, topology):
    module, x = wrapped(target, topology, module=Attributes(2, 1))
    with torch.no_grad():
        with module.hold():
            found = [module(x).unique().tolist() for _ in range(3)]
        assert module(x).unique().tolist() == [1.0]
    assert found == [[1.0], [2.0], [3.0]]
    assert module.module.calls == 0


@SINGLE
@given(grad=st.booleans())
def test_with_one_device_nothing_is_held_nor_refused(target, topology, grad):
    module, x = wrapped(target, topology, module=Cached(), devices=1)
    with torch.set_grad_enabled(grad), module.hold():
        checks.same(module(x).detach(), x)
        with torch.no_grad():
            module.module.weight.fill_(2.0)
        module.train()
        checks.same(module(x).detach(), 2 * x)


@HELD
def test_reference_has_no_way_to_hold_replicas(reference):
    assert not hasattr(reference.data_parallel.DataParallel, "hold")
