"""impl.parallel_apply with in_turn=True: one module after another."""

import threading
import weakref

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.overrides import BaseTorchFunctionMode

import impl
from spec_tests import checks
from spec_tests.checks.leaks import check_freed, disable_gc


def in_turn(topology, modules, inputs=None):
    arguments = [()] * len(modules) if inputs is None else inputs
    devices = topology.take([index % 3 for index in range(len(modules))])
    return impl.parallel_apply(modules, arguments, devices=devices, in_turn=True)


class Recording:
    """A callable that records its start, end and thread.

    It raises ``error``, or returns its number and the current device.
    """

    def __init__(self, records, number, error=None):
        self.records, self.number, self.error = records, number, error

    def __call__(self, *_):
        self.records.append(("start", self.number, threading.get_ident()))
        if self.error is not None:
            raise self.error
        self.records.append(("end", self.number, threading.get_ident()))
        return self.number, torch.accelerator.current_device_index()


@given(count=st.integers(1, 9))
@example(count=2)
def test_each_module_starts_after_the_previous_one_has_ended(topology, count):
    records = []
    found = in_turn(topology, [Recording(records, number) for number in range(count)])
    events = [(event, number) for event, number, _ in records]
    checks.same(events, [(event, number) for number in range(count) for event in ("start", "end")])
    ordinals = [device.index for device in topology.take([0, 1, 2])]
    checks.same(found, [(number, ordinals[number % 3]) for number in range(count)])


def test_modules_run_in_turn_in_another_thread_under_active_modes(topology):
    records = []
    with BaseTorchFunctionMode():
        in_turn(topology, [Recording(records, number) for number in range(4)])
    assert [number for _, number, _ in records] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert threading.get_ident() not in {thread for *_, thread in records}


@given(count=st.integers(2, 5), failing=st.sets(st.integers(0, 4), min_size=1))
def test_all_modules_run_and_the_first_error_is_raised(topology, count, failing):
    records, failing = [], {number % count for number in failing}
    errors = {number: KeyError(f"number {number}") for number in failing}
    modules = [Recording(records, number, errors.get(number)) for number in range(count)]
    with pytest.raises(
        KeyError, match=f"in replica {min(failing)} on(.|\n)*number {min(failing)}"
    ):
        in_turn(topology, modules)
    checks.same([number for event, number, _ in records if event == "start"], list(range(count)))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("fails_before", [False, True], ids="fails_before={}".format)
def test_an_interrupt_stops_later_modules(topology, kind, index, fails_before):
    records, error = [], kind("stop")
    modules = [Recording(records, number) for number in range(3)]
    if fails_before:
        modules[0] = Recording(records, 0, ValueError("failure"))
    modules[index] = Recording(records, index, error)
    with pytest.raises(kind) as raised:
        in_turn(topology, modules)
    assert raised.value is error
    assert f"Raised in replica {index} on device" in raised.value.__notes__[0]
    checks.same([number for event, number, _ in records if event == "start"], [*range(index + 1)])


def test_outputs_of_modules_in_turn_are_freed(topology):
    x = torch.ones(2, device=topology.device(0))
    with disable_gc():
        outputs = in_turn(topology, [nn.Identity()] * 3, [(x + n,) for n in range(3)])
        references = [weakref.ref(output) for output in outputs]
        del outputs
        check_freed(references)
