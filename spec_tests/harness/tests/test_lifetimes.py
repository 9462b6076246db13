"""`leaked_objects` finds objects that outlive a call, and raises if the call fails."""

import pytest
import torch

from spec_tests.harness.compare.lifetimes import leaked_objects, objects_leaked_by_error

LEAKED = []


class TensorCall:
    """A call with one tensor. The target is a function in these tests."""

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
    assert leaked_objects(TensorCall(), LEAKED.append, topology) == ["inputs['x']"]
    assert leaked_objects(TensorCall(), lambda x: LEAKED.append(x + 1), topology) == []
    assert leaked_objects(TensorCall(), torch.clone, topology) == []


def test_leaked_objects_raises_the_error_of_the_call(topology):
    with pytest.raises(ValueError, match="no"):
        leaked_objects(TensorCall(), fail, topology)


def test_objects_leaked_by_error_requires_an_error(topology):
    assert objects_leaked_by_error(TensorCall(), fail, topology) == []
    assert objects_leaked_by_error(TensorCall(), leak_and_fail, topology) == ["inputs['x']"]
    with pytest.raises(pytest.fail.Exception, match="the call raised no exception"):
        objects_leaked_by_error(TensorCall(), torch.clone, topology)
