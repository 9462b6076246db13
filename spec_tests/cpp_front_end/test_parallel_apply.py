"""What C++ parallel_apply does: every module runs, then the first error in time is raised.

A row of a trial is a wait in milliseconds and a code; a negative code is an error. These are facts
of the C++ system itself; neither target nor reference is asked.
"""

import pytest
import torch

from spec_tests.cpp_front_end.threads import use_threads
from spec_tests.harness.conformance.clauses import clause

#: Long enough that a thread which is to fail first does, on a busy machine too.
WAIT = 500  # milliseconds


@pytest.fixture
def four_threads():
    with use_threads(4):
        yield


def trials(front_end, *rows):
    inputs = [torch.tensor([row]) for row in rows]
    return front_end.parallel_apply([front_end.Model("trial")] * len(rows), inputs, None)


def identities(front_end, count):
    return [front_end.Model("identity")] * count


@clause("cpp.parallel_apply.first-in-time")
@pytest.mark.parametrize("early", [0, 1, 2], ids="early={}".format)
def test_the_error_raised_is_the_earliest(front_end, four_threads, early):
    rows = [(0 if index == early else WAIT, -1 - index) for index in range(3)]
    with pytest.raises(ValueError, match=f"trial {1 + early} failed"):
        trials(front_end, *rows)


@clause("cpp.parallel_apply.all-end")
def test_an_error_waits_for_the_others(front_end, four_threads):
    front_end.ended()
    with pytest.raises(ValueError, match="trial 1 failed"):
        trials(front_end, (0, -1), (WAIT, 0), (WAIT, 0))
    assert front_end.ended() == 3


@clause("cpp.parallel_apply.error-is-itself")
def test_the_error_is_not_rewrapped(front_end, four_threads):
    with pytest.raises(ValueError) as caught:
        trials(front_end, (0, 0), (0, -7))
    assert str(caught.value).split("\n")[0] == "trial 7 failed"


@clause("cpp.parallel_apply.outputs-are-moved")
def test_outputs_are_moved_to_the_given_devices(front_end, topology):
    inputs = [torch.ones(2, device=topology.device(0)) for _ in range(3)]
    outputs = front_end.parallel_apply(identities(front_end, 3), inputs, topology.take(3))
    assert [output.device for output in outputs] == topology.take(3)


@clause("cpp.parallel_apply.outputs-follow-inputs")
def test_without_devices_outputs_are_moved_to_their_inputs(front_end, topology):
    inputs = [torch.ones(2, device=device) for device in topology.take(3)]
    models = [front_end.Model("current device")] * 3
    outputs = front_end.parallel_apply(models, inputs, None)
    assert [output.device for output in outputs] == topology.take(3)


@clause("cpp.parallel_apply.current-device")
def test_the_given_device_is_not_made_current(front_end, topology):
    topology.require(distinct=2)
    device = topology.device(1)
    models = [front_end.Model("current device")]
    with torch.accelerator.device_index(topology.device(0).index):
        outputs = front_end.parallel_apply(models, [torch.ones(1, device=device)], [device])
    assert outputs[0].tolist() == [topology.device(0).index]


@clause("cpp.parallel_apply.lengths")
def test_other_numbers_of_inputs_or_devices_are_refused(front_end, topology):
    models, inputs = identities(front_end, 2), [torch.ones(1), torch.ones(1)]
    with pytest.raises(RuntimeError, match="Must have as many inputs as modules"):
        front_end.parallel_apply(models, inputs[:1], None)
    with pytest.raises(RuntimeError, match="Must have as many devices as modules"):
        front_end.parallel_apply(models, inputs, topology.take(1))


@clause("cpp.parallel_apply.nothing")
def test_no_modules_give_no_outputs(front_end):
    assert front_end.parallel_apply([], [], None) == []
