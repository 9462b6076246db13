"""The kinds of perturbations: ways in which the behaviour of a call is made wrong."""

from typing import Any

from impl_tests.weekly.perturbations.calls import Call
from impl_tests.weekly.perturbations.kinds import (  # noqa: F401 # these modules add their kinds to the table
    calls,
    containers,
    errors,
    modules,
    registry,
    replicas,
    tensors,
)
from impl_tests.weekly.perturbations.kinds.registry import KINDS, UNDO

__all__ = ["KINDS", "OTHER_SIGNATURE", "perturbed", "undo"]

#: The kind that changes no call: `wrapping` hides the signature of the function.
OTHER_SIGNATURE = "other-signature"


@registry.around
def other_signature(call: Call) -> Any:
    """Hide the signature of the function."""
    return call.run()


def perturbed(kind: str, call: Call) -> Any:
    """Make a call with behaviour that is wrong in one way; return the result."""
    name, _, word = kind.partition(":")
    return KINDS[name](call, word)


def undo() -> None:
    """Undo changes of this process's state by the test that has ended."""
    while UNDO:
        UNDO.pop()()
