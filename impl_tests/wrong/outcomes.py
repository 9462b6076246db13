"""The outcome of a recorded call, from which a search chooses kinds that can have an effect."""

from collections.abc import Iterator
from typing import Any

from impl_tests.wrong.calls import modules_in, tensors_in

__all__ = ["GRAD", "MODULES", "RAISED", "RETURNED", "TENSORS", "facts_of_result"]

RAISED, RETURNED = "raised", "returned"
#: The result contains tensors, tensors that require a gradient, or modules.
TENSORS, GRAD, MODULES = "tensors", "grad", "modules"


def facts_of_result(result: Any) -> Iterator[str]:
    """Yield facts of a result."""
    yield RETURNED
    tensors = tensors_in(result)
    modules = modules_in(result)
    if tensors:
        yield TENSORS
    if any(tensor.requires_grad for tensor in tensors) or modules:
        yield GRAD
    if modules:
        yield MODULES
