"""Modules that the calling thread calls in turn, which the reference cannot: PA-9."""

import copy
import inspect
import pickle
import re
import threading
import time
import warnings
import weakref

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.overrides import TorchFunctionMode

from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.leaks import all_freed, no_garbage_collection
from spec_tests.harness.conformance.clauses import clause

ORDER = clause("divergences.PA-9.one-after-the-other")
STATE = clause("divergences.PA-9.state-of-the-caller")
ERRORS = clause("divergences.PA-9.errors")
INTERRUPTS = clause("divergences.PA-9.interrupts")
WAITING = clause("divergences.PA-9.waiting")
SLOW = clause("divergences.PA-9.slow")
WRAPPED = clause("divergences.PA-9.data-parallel")
#: More than the 5 seconds after which a module in turn is looked at.
LONG = 6.0


def in_turn(target, topology, modules, inputs=None):
    arguments = [()] * len(modules) if inputs is None else inputs
    devices = topology.take([index % 3 for index in range(len(modules))])
    return target.parallel_apply.parallel_apply(modules, arguments, devices=devices, in_turn=True)


class Noting:
    """Notes when it begins and ends, in which thread and on which device; may raise."""

    def __init__(self, noted, number, error=None):
        self.noted, self.number, self.error = noted, number, error

    def __call__(self, *_):
        self.noted.append(("begins", self.number, threading.get_ident()))
        if self.error is not None:
            raise self.error
        time.sleep(0.001)  # So that others could come between.
        self.noted.append(("ends", self.number, threading.get_ident()))
        return self.number, torch.accelerator.current_device_index()


@ORDER
@given(count=st.integers(1, 9))
@example(count=2)
def test_each_module_begins_when_the_one_before_has_ended(target, topology, count):
    noted = []
    found = in_turn(target, topology, [Noting(noted, number) for number in range(count)])
    events = [(what, number) for what, number, _ in noted]
    checks.same(events, [(w, number) for number in range(count) for w in ("begins", "ends")])
    ordinals = [device.index for device in topology.take([0, 1, 2])]
    checks.same(found, [(number, ordinals[number % 3]) for number in range(count)])


class Mode(TorchFunctionMode):
    """Changes nothing."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@ORDER
def test_modules_take_turns_where_they_cannot_run_in_the_callers_thread(target, topology):
    noted = []
    with Mode():
        in_turn(target, topology, [Noting(noted, number) for number in range(4)])
    assert [number for _, number, _ in noted] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert threading.get_ident() not in {thread for *_, thread in noted}


class Settings:
    """Tells the state that it finds, and leaves another one behind."""

    kept = threading.local()

    def __call__(self, x):
        found = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            vars(self.kept).copy(),
            torch.accelerator.current_device_index(),
        )
        torch.set_grad_enabled(not torch.is_grad_enabled())
        torch.set_autocast_enabled("cpu", not torch.is_autocast_enabled("cpu"))
        torch.accelerator.set_device_index((found[-1] + 1) % 2)
        self.kept.value = 3
        return found


@STATE
@given(grad=st.booleans(), autocast=st.booleans(), count=st.integers(2, 5))
def test_each_module_works_in_the_state_of_the_caller(target, topology, grad, autocast, count):
    Settings.kept.value = "the caller's"
    x = torch.ones(1, device=topology.device(0))
    with torch.set_grad_enabled(grad), torch.autocast("cpu", enabled=autocast):
        found = in_turn(target, topology, [Settings()] * count, [(x,)] * count)
        assert torch.is_grad_enabled() is grad
        assert torch.is_autocast_enabled("cpu") is autocast
    ordinals = [device.index for device in topology.take([0, 1, 2])]
    checks.same(found, [(grad, False, autocast, {}, ordinals[i % 3]) for i in range(count)])
    assert Settings.kept.value == "the caller's"


@ERRORS
@given(count=st.integers(2, 5), failing=st.sets(st.integers(0, 4), min_size=1))
def test_all_run_and_the_first_error_is_raised(target, topology, count, failing):
    noted, failing = [], {each % count for each in failing}
    errors = {number: KeyError(f"number {number}") for number in failing}
    modules = [Noting(noted, number, errors.get(number)) for number in range(count)]
    with pytest.raises(
        KeyError, match=f"in replica {min(failing)} on(.|\n)*number {min(failing)}"
    ):
        in_turn(target, topology, modules)
    checks.same([number for what, number, _ in noted if what == "begins"], list(range(count)))


@INTERRUPTS
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("fails_before", [False, True], ids="fails_before={}".format)
def test_an_interrupt_keeps_the_next_ones_from_beginning(
    target, topology, kind, index, fails_before
):
    noted, error = [], kind("stop")
    modules = [Noting(noted, number) for number in range(3)]
    if fails_before:
        modules[0] = Noting(noted, 0, ValueError("a mere error"))
    modules[index] = Noting(noted, index, error)
    with pytest.raises(kind) as raised:
        in_turn(target, topology, modules)
    assert raised.value is error
    assert f"Raised in replica {index} on device" in raised.value.__notes__[0]
    checks.same([number for what, number, _ in noted if what == "begins"], [*range(index + 1)])


@WAITING
def test_a_module_that_waits_for_a_later_one_ends_in_an_error(target, topology):
    barrier, noted = threading.Barrier(2, timeout=60), []

    def meet():
        barrier.wait()
        noted.append(threading.get_ident())

    with pytest.raises(
        RuntimeError, match=r"Replica 1 on .* had not ended after 5 s, and replica 2"
    ):
        in_turn(target, topology, [Noting([], 0), meet, meet])
    assert len(set(noted)) == 2


@SLOW
def test_a_module_that_computes_as_long_gives_its_result(target, topology):
    def compute():
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            pass
        return "computed"

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = in_turn(target, topology, [compute, Noting([], 1)])
    assert any(
        issubclass(each.category, RuntimeWarning)
        and re.search(r"Replica 0 on .* 5 s, and replica 1 had not begun", str(each.message))
        for each in told
    )
    assert found[0] == "computed"
    assert found[1][0] == 1


@SLOW
def test_the_last_module_may_take_its_time(target, topology):
    def rest():
        time.sleep(LONG)
        return "rested"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = in_turn(target, topology, [Noting([], 0), rest])
    assert found[1] == "rested"


@ORDER
def test_nothing_is_kept_of_a_call(target, topology):
    x = torch.ones(2, device=topology.device(0))
    with no_garbage_collection():
        outputs = in_turn(target, topology, [nn.Identity()] * 3, [(x + n,) for n in range(3)])
        references = [weakref.ref(each) for each in outputs]
        del outputs
        assert all_freed(references)


def network(target, topology, **options):
    torch.manual_seed(0)
    devices = topology.take(3)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).to(devices[0])
    return target.data_parallel.DataParallel(module, devices, **options)


@WRAPPED
@given(rows=st.sampled_from([4, 6, 8, 9, 12]), seed=st.integers(0, 9))
def test_a_wrapped_module_computes_the_same_in_turn(target, topology, rows, seed):
    results = []
    for options in ({}, {"in_turn": True}):
        module = network(target, topology, **options)
        torch.manual_seed(seed)
        y = module(torch.rand(rows, 2, device=topology.device(0)))
        y.square().sum().backward()
        gradients = [parameter.grad.tolist() for parameter in module.parameters()]
        results.append([y.tolist(), gradients, [each.tolist() for each in module.buffers()]])
    checks.same(results[1], results[0])


class Threads(nn.Module):
    """Notes its threads."""

    def __init__(self, noted):
        super().__init__()
        self.noted = noted

    def forward(self, x):
        self.noted.append(threading.get_ident())
        time.sleep(0.01)
        return x


@WRAPPED
@pytest.mark.parametrize(
    "duplicate",
    [lambda module: module, copy.copy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["itself", "copy", "pickle"],
)
def test_replicas_of_a_wrapped_module_take_turns(target, topology, duplicate):
    kind = target.data_parallel.DataParallel
    module = duplicate(kind(nn.Identity(), topology.take(3), in_turn=True))
    module.module = Threads([])
    module(torch.ones(6, device=topology.device(0)))
    assert len(module.module.noted) == 3
    assert len(set(module.module.noted)) == 1
    assert not kind(nn.Identity(), topology.take(3)).in_turn


@WRAPPED
def test_reference_takes_no_turns(reference):
    apply = reference.parallel_apply.parallel_apply
    for function in (apply, reference.data_parallel.DataParallel):
        assert "in_turn" not in inspect.signature(function).parameters
