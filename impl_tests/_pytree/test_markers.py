"""impl._pytree.markers: equality and immutability of markers."""

import dataclasses

import pytest

from impl import SplitAlong, Whole

BOTH = pytest.mark.parametrize(
    "make", [lambda: Whole([1]), lambda: SplitAlong([1], 0)], ids=["Whole", "SplitAlong"]
)


@BOTH
def test_marker_equals_only_itself(make):
    marker = make()
    assert marker == marker
    assert marker != make()
    assert len({marker, make()}) == 2


@BOTH
def test_marker_attribute_cannot_be_assigned(make):
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().value = None


@BOTH
def test_marker_has_no_dictionary(make):
    assert not hasattr(make(), "__dict__")
