"""Comparison of the results of several processes with those of one."""

from typing import Any

from torch import Tensor

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot

#: Tolerance for float64 sums of a few hundred terms that are added in different orders.
ROUNDING = 1e-9


def check_close(actual: Any, expected: Any, call: object = "") -> None:
    """Fail unless nested values are equal. Tensors may differ by `ROUNDING`."""
    __tracebackhide__ = True
    found, other = (snapshot(value, {}, strides=False) for value in (actual, expected))
    checks.same(found, other, call, tolerance=ROUNDING)


def copy_to_cpu(tensor: Tensor | None) -> Tensor | None:
    """Return a detached copy on the CPU; None for None."""
    return None if tensor is None else tensor.detach().cpu().clone()
