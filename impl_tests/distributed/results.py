"""Comparison of the results of several processes with those of one."""

from typing import Any

from torch import Tensor

from bench.rank_pool import Raised
from spec_tests import checks
from spec_tests.checks.snapshot import snapshot

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


def check_same_error(found: list[Any], kind: str, *parts: str) -> None:
    """Fail unless every rank raises the same error, with ``parts`` in its text."""
    __tracebackhide__ = True
    assert len({repr(result) for result in found}) == 1, found
    assert isinstance(found[0], Raised), found
    assert found[0].kind == kind, found
    assert not [part for part in parts if part not in found[0].text], found
