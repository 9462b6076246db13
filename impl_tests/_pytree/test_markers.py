"""impl._pytree.markers: values that are what they are made of, and nothing else."""

import dataclasses

import pytest

from impl import SplitAlong, Whole

BOTH = pytest.mark.parametrize(
    "make", [lambda: Whole([1]), lambda: SplitAlong([1], 0)], ids=["Whole", "SplitAlong"]
)


@BOTH
def test_a_marker_equals_itself_only(make):
    marker = make()
    assert marker == marker
    assert marker != make()
    assert len({marker, make()}) == 2


@BOTH
def test_a_marker_cannot_be_changed(make):
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().value = None


@BOTH
def test_a_marker_holds_nothing_else(make):
    assert not hasattr(make(), "__dict__")
