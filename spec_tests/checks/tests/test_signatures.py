"""`checks.signatures` names the functions whose parameters differ."""

import inspect
from types import ModuleType

import pytest

from spec_tests.checks.signatures import check_calls_accepted
from spec_tests.machine.target import Part


def part_with(function):
    module = ModuleType("part")
    module.replicate = function
    return Part("replicate", module)


def expected(network, devices, detach=False):
    pass


def test_further_parameters_may_be_keyword_only_with_defaults():
    def found(network, devices, detach=False, *, buffer_size=1):
        pass

    check_calls_accepted(part_with(found), {"replicate": expected})


@pytest.mark.parametrize(
    "found",
    [
        lambda network, devices, detach=False, further=None: ...,
        lambda network, devices, detach=False, *, further: ...,
        lambda network, devices, detach=True: ...,
        lambda devices, network, detach=False: ...,
        lambda network, devices: ...,
        lambda network, devices, detach=False, *args: ...,
    ],
    ids=lambda found: str(inspect.signature(found)),
)
def test_other_parameters_fail(found):
    with pytest.raises(AssertionError, match=r"replicate\(network, devices, detach=False\) was"):
        check_calls_accepted(part_with(found), {"replicate": expected})


def test_parameter_that_the_target_lacks_is_named():
    def new_release(network, devices, detach=False, *, share_buffers=False):
        pass

    with pytest.raises(AssertionError, match=r"without share_buffers$"):
        check_calls_accepted(part_with(expected), {"replicate": new_release})
