"""One call with a fault, and the checks of the state and of the next call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from .calls import Call
from .state import Resources, find_changes, read_module, read_state
from .verdicts import BAD, Finding, are_equal

__all__ = ["describe", "inject"]

#: The largest length, in characters, of an error's text in a finding.
_TEXT_LENGTH = 300


def inject(
    call: Call,
    run_with_fault: Callable[[Sequence[Tensor]], Finding],
    kept_threads: int,
    *,
    is_warm: bool = False,
) -> Finding:
    """Make a call with a fault, then one without a fault. Return the verdict on both.

    Args:
        call: The call to make without a fault.
        run_with_fault: A function that makes the call with a fault and returns its verdict. Its
            argument is the right result. It must not keep the error or the results alive.
        kept_threads: How many threads the target may keep for later calls.
        is_warm: Whether to make a call without a fault first.
    """
    expected = call.expected()
    call.drop_grads()
    if is_warm and (problem := _find_problem(call, expected, "no fault")):
        return problem
    state, members, resources = read_state(), read_module(call.net), Resources(kept_threads)
    finding = run_with_fault(expected)
    call.drop_grads()
    if finding.verdict in BAD:
        return finding
    before_next = _find_changes(call, state, members, resources)
    problem = _find_problem(call, expected, finding.kind)
    changes = before_next or _find_changes(call, state, members, resources)
    if changes:
        return Finding("state left", finding.kind, f"{finding.detail}; {'; '.join(changes)}")
    return problem or finding


def _find_changes(
    call: Call, state: Mapping[str, Any], members: Mapping[str, Any], resources: Resources
) -> list[str]:
    return [
        *find_changes(state, read_state()),
        *find_changes(members, read_module(call.net)),
        *resources.find_growth(),
    ]


def _find_problem(call: Call, expected: Sequence[Tensor], kind: str) -> Finding | None:
    """Make a call without a fault. Return a finding if its result is wrong or it raises."""
    try:
        is_right = are_equal(call.compute(), expected)
    except BaseException as error:
        return Finding("wrong result", kind, f"a call without a fault raised {describe(error)}")
    finally:
        call.drop_grads()
    return None if is_right else Finding("wrong result", kind, "of a call without a fault")


def describe(error: BaseException, limit: int | None = _TEXT_LENGTH) -> str:
    """Return the class and the end of the text of an exception, even if ``__str__`` raises.

    ``limit`` is the largest length of the text.
    """
    try:
        text = str(error)
    except BaseException as reason:
        text = f"<{type(reason).__name__} in __str__>"
    return f"{type(error).__name__}: {text if limit is None else text[-limit:]}"
