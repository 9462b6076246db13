"""Compare results on a simulated device with those on the CPU.

The device is not the current device.
"""

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

__all__ = ["DEVICE", "assert_same"]

DEVICE = "sim:2"


def assert_same(expected: object, actual: object) -> None:
    """Check that ``actual`` is on ``DEVICE`` and equals ``expected``, strides included."""
    wanted, found = tree_leaves(expected), tree_leaves(actual)
    assert len(wanted) == len(found)
    for want, got in zip(wanted, found, strict=True):
        if isinstance(want, Tensor):
            _assert_same_tensor(want, got)
        else:
            assert want == got


def _assert_same_tensor(expected: Tensor, actual: Tensor) -> None:
    assert str(actual.device) == DEVICE, f"on {actual.device}"
    assert expected.requires_grad == actual.requires_grad
    assert (expected.is_conj(), expected.is_neg()) == (actual.is_conj(), actual.is_neg())
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True)
    if expected.layout == torch.strided:
        assert expected.stride() == actual.stride(), (
            f"strides {actual.stride()}, not {expected.stride()}"
        )
