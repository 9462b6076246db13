"""Comparison of the results of several processes with those of one."""

from typing import Any

import torch
from torch import Tensor

#: Tolerance for float64 sums of a few hundred terms that are added in different orders.
ROUNDING = 1e-9


def check_close(actual: Any, expected: Any, call: object = "") -> None:
    """Fail unless nested values are equal. Tensors may differ by `ROUNDING`."""
    __tracebackhide__ = True
    leaves, expected_leaves = _flatten(actual), _flatten(expected)
    if [each for each in leaves if not isinstance(each, Tensor)] != [
        each for each in expected_leaves if not isinstance(each, Tensor)
    ]:
        raise AssertionError(f"{actual!r}\nis not\n{expected!r}\nin the call\n  {call!r}")
    tensors = [
        [each for each in flat if isinstance(each, Tensor)] for flat in (leaves, expected_leaves)
    ]
    try:
        torch.testing.assert_close(*tensors, rtol=ROUNDING, atol=ROUNDING)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{actual!r}\nin the call\n  {call!r}") from None


def _flatten(value: Any) -> list[Any]:
    """Return the leaves of a nested value. The length of a container precedes its leaves."""
    if isinstance(value, dict):
        return [len(value), *(leaf for item in value.items() for leaf in _flatten(item))]
    if isinstance(value, list | tuple):
        return [len(value), *(leaf for member in value for leaf in _flatten(member))]
    return [value]


def copy_to_cpu(tensor: Tensor | None) -> Tensor | None:
    """Return a detached copy on the CPU; None for None."""
    return None if tensor is None else tensor.detach().cpu().clone()
