"""`left_over` finds objects that outlive a call, and raises if the call fails."""

import pytest
import torch

from spec_tests.harness.compare.lifetimes import left_over, left_over_of_refusal

LEAKED = []


class Call:
    """A call of the target, which is a function here, with one tensor."""

    def inputs(self, topology):
        return {"x": torch.ones(2)}

    def run(self, target, inputs):
        return target(inputs["x"])

    def __repr__(self):
        return "the call"


def fail(x):
    raise ValueError("no")


def leak_and_fail(x):
    LEAKED.append(x)
    fail(x)


@pytest.fixture(autouse=True)
def clear_leaked_objects():
    yield
    LEAKED.clear()


def test_paths_of_leaked_objects_are_returned(topology):
    assert left_over(Call(), LEAKED.append, topology) == ["inputs['x']"]
    assert left_over(Call(), lambda x: LEAKED.append(x + 1), topology) == []
    assert left_over(Call(), torch.clone, topology) == []


def test_left_over_raises_the_error_of_the_call(topology):
    with pytest.raises(ValueError, match="no"):
        left_over(Call(), fail, topology)


def test_left_over_of_refusal_requires_an_error(topology):
    assert left_over_of_refusal(Call(), fail, topology) == []
    assert left_over_of_refusal(Call(), leak_and_fail, topology) == ["inputs['x']"]
    with pytest.raises(pytest.fail.Exception, match="the call was not refused"):
        left_over_of_refusal(Call(), torch.clone, topology)
