"""What outlives a call is seen, and a target that only fails does not count as leaking nothing."""

import pytest
import torch

from spec_tests.harness.compare.lifetimes import leaked_objects, objects_leaked_by_error

KEPT = []


class Call:
    """A call with one tensor; the target is the function that is called with it."""

    def inputs(self, topology):
        return {"x": torch.ones(2)}

    def run(self, target, inputs):
        return target(inputs["x"])

    def __repr__(self):
        return "the call"


def refuse(x):
    raise ValueError("no")


def keep_and_refuse(x):
    KEPT.append(x)
    refuse(x)


@pytest.fixture(autouse=True)
def forget():
    yield
    KEPT.clear()


def test_what_is_kept_is_named(topology):
    assert leaked_objects(Call(), KEPT.append, topology) == ["inputs['x']"]
    assert leaked_objects(Call(), lambda x: KEPT.append(x + 1), topology) == []
    assert leaked_objects(Call(), torch.clone, topology) == []


def test_a_call_that_should_succeed_must(topology):
    with pytest.raises(ValueError, match="no"):
        leaked_objects(Call(), refuse, topology)


def test_a_call_that_should_be_refused_must(topology):
    assert objects_leaked_by_error(Call(), refuse, topology) == []
    assert objects_leaked_by_error(Call(), keep_and_refuse, topology) == ["inputs['x']"]
    with pytest.raises(pytest.fail.Exception, match="the call raised no exception"):
        objects_leaked_by_error(Call(), torch.clone, topology)
