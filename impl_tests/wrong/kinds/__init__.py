"""The kinds of perturbations: ways in which the behaviour of a call is made wrong."""

from typing import Any

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds import (  # noqa: F401 # these modules add their kinds to the table
    calls,
    containers,
    errors,
    modules,
    replicas,
    tensors,
)
from impl_tests.wrong.kinds.registry import KINDS

__all__ = ["KINDS", "OTHER_SIGNATURE", "perturbed"]

#: The kind that changes no call: `wrapping` hides the signature of the function.
OTHER_SIGNATURE = "other-signature"
KINDS[OTHER_SIGNATURE] = Call.run


def perturbed(kind: str, call: Call) -> Any:
    """Make a call with behaviour that is wrong in one way; return the result."""
    name, _, detail = kind.partition(":")
    return KINDS.detailed[name](call, detail) if detail else KINDS[name](call)
