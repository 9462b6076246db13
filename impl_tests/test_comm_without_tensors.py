"""impl.comm: calls without tensors."""

import pytest

from impl import comm


@pytest.mark.parametrize("inputs", [[], [[], []]])
def test_no_device_is_needed_to_add_no_tensors(inputs):
    assert comm.reduce_add_coalesced(inputs, "cpu") == ()
