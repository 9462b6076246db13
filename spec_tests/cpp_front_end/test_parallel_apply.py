"""C++ parallel_apply: every module runs, then the first error in time is raised.

The tests check the C++ front end, not the target or the reference. The input of a module of kind
"sleep and raise" is a row (ms, code): the module sleeps for ms milliseconds and raises an error if
the code is negative.
"""

import pytest
import torch

from spec_tests.cpp_front_end.threads import use_threads
from spec_tests.harness.conformance.clauses import clause

#: Milliseconds that a slow module sleeps before it fails: long enough for a module that does not
#: sleep to fail first, even on a busy machine.
SLEEP = 500


@pytest.fixture
def four_threads():
    """Set the number of PyTorch's threads to four, enough for the modules of each test."""
    with use_threads(4):
        yield


def sleep_and_raise(front_end, *rows):
    inputs = [torch.tensor([row]) for row in rows]
    return front_end.parallel_apply([front_end.Model("sleep and raise")] * len(rows), inputs, None)


def identity_models(front_end, count):
    return [front_end.Model("identity")] * count


@clause("cpp.parallel_apply.first-in-time")
@pytest.mark.parametrize("first", [0, 1, 2], ids="first={}".format)
def test_first_error_in_time_is_raised(front_end, four_threads, first):
    rows = [(0 if index == first else SLEEP, -1 - index) for index in range(3)]
    with pytest.raises(ValueError, match=f"module {1 + first} failed"):
        sleep_and_raise(front_end, *rows)


@clause("cpp.parallel_apply.all-end")
def test_error_is_raised_after_all_modules_end(front_end, four_threads):
    front_end.pop_ended_count()
    with pytest.raises(ValueError, match="module 1 failed"):
        sleep_and_raise(front_end, (0, -1), (SLEEP, 0), (SLEEP, 0))
    assert front_end.pop_ended_count() == 3


@clause("cpp.parallel_apply.error-is-itself")
def test_error_keeps_its_text(front_end, four_threads):
    with pytest.raises(ValueError) as caught:
        sleep_and_raise(front_end, (0, 0), (0, -7))
    assert str(caught.value).split("\n")[0] == "module 7 failed"


@clause("cpp.parallel_apply.outputs-are-moved")
def test_cpp_outputs_are_moved_to_the_given_devices(front_end, topology):
    inputs = [torch.ones(2, device=topology.device(0)) for _ in range(3)]
    outputs = front_end.parallel_apply(identity_models(front_end, 3), inputs, topology.take(3))
    assert [output.device for output in outputs] == topology.take(3)


@clause("cpp.parallel_apply.outputs-follow-inputs")
def test_without_the_devices_argument_outputs_are_on_the_input_devices(front_end, topology):
    inputs = [torch.ones(2, device=device) for device in topology.take(3)]
    models = [front_end.Model("current device")] * 3
    outputs = front_end.parallel_apply(models, inputs, None)
    assert [output.device for output in outputs] == topology.take(3)


@clause("cpp.parallel_apply.current-device")
def test_device_of_a_module_is_not_made_current(front_end, topology):
    topology.require(distinct=2)
    device = topology.device(1)
    models = [front_end.Model("current device")]
    with torch.accelerator.device_index(topology.device(0).index):
        outputs = front_end.parallel_apply(models, [torch.ones(1, device=device)], [device])
    assert outputs[0].tolist() == [topology.device(0).index]


@clause("cpp.parallel_apply.lengths")
def test_fewer_inputs_or_devices_than_modules_are_refused(front_end, topology):
    models, inputs = identity_models(front_end, 2), [torch.ones(1), torch.ones(1)]
    with pytest.raises(RuntimeError, match="Must have as many inputs as modules"):
        front_end.parallel_apply(models, inputs[:1], None)
    with pytest.raises(RuntimeError, match="Must have as many devices as modules"):
        front_end.parallel_apply(models, inputs, topology.take(1))


@clause("cpp.parallel_apply.nothing")
def test_empty_list_of_modules_returns_no_outputs(front_end):
    assert front_end.parallel_apply([], [], None) == []
