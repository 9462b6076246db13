"""The verdicts on faults, their table, and comparisons of results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BAD", "VERDICTS", "Finding", "are_equal", "describe", "format_counts"]

#: Verdict -> its meaning. A verdict in ``BAD`` makes the run fail.
VERDICTS = {
    "not reached": "the call ended before the fault, or did not need the refused resource",
    "right": "the call returned the right result without the refused resource",
    "error": "the call raised the error that reports this fault",
    "other error": "the call raised another error, or an error that does not report the fault",
    "lost": "the fault occurred, and the call returned as if it had not",
    "wrong result": "this call or the next one returned a wrong result, or the next one failed",
    "state left": "after the call a setting, a module or the memory differs, or a thread runs",
    "hang": "the call, or the next one, did not end in time",
    "crash": "the process died",
}
#: The verdicts that make the run fail: all from "other error" on.
BAD = tuple(VERDICTS)[3:]
#: The largest relative and absolute difference of two numbers that count as equal, and that in
#: autocast to float16, where the sum of several gradients of a parameter is rounded in any order.
_TOLERANCE, _AUTOCAST_TOLERANCE = 1e-3, 1e-2
#: The largest length, in characters, of an error's text in a finding.
_TEXT_LENGTH = 300


class Finding(NamedTuple):
    """The verdict on one fault: one of ``VERDICTS``, the fault's kind, and what was observed."""

    verdict: str
    kind: str
    detail: str = ""


def are_equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether two sequences contain equal tensors in the same order.

    Numbers may differ by rounding: implementations may add gradients in another order.
    """
    return len(found) == len(expected) and all(map(_is_close, found, expected))


def _is_close(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    tolerance = _AUTOCAST_TOLERANCE if torch.is_autocast_enabled("sim") else _TOLERANCE
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def describe(error: BaseException, limit: int | None = _TEXT_LENGTH) -> str:
    """Return the class and the last ``limit`` characters of the text of an exception.

    ``__str__`` of the exception may raise an error.
    """
    try:
        text = str(error)
    except BaseException as reason:
        text = f"<{type(reason).__name__} in __str__>"
    return f"{type(error).__name__}: {text if limit is None else text[-limit:]}"


def format_counts(
    findings: Counter[tuple[str, str]], meanings: Mapping[str, str], bad: Sequence[str]
) -> str:
    """Return a line for each kind of fault and verdict, with its number and meaning.

    Args:
        findings: The numbers of pairs of a kind and a verdict.
        meanings: Verdict -> its meaning.
        bad: The bad verdicts.
    """
    width = max((len(kind) for kind, _ in findings), default=0)
    return "\n".join(
        f"{count:7}  {kind:{width}}  {verdict}{' (bad)' * (verdict in bad)}: {meanings[verdict]}"
        for (kind, verdict), count in sorted(findings.items())
    )
