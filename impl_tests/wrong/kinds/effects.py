"""Kinds with other effects: warnings, references that are kept, and repeated calls."""

import warnings
from typing import Any

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


@KINDS.around
def first_result_again(call: Call) -> Any:
    """Return the result of the first call with the same function again."""
    cache: dict[Any, Any] = call.function.__dict__ if hasattr(call.function, "__dict__") else {}
    if "_first_result" not in cache:
        cache["_first_result"] = call.run()
        state.later(lambda: cache.pop("_first_result", None))
    return cache["_first_result"]


_KEPT: list[Any] = []


@KINDS.around
def result_kept(call: Call) -> Any:
    """Keep a reference to the result."""
    result = call.run()
    _KEPT.append(result)
    return result


@KINDS.around
def arguments_kept(call: Call) -> Any:
    """Keep references to the arguments."""
    _KEPT.append(dict(call.arguments))
    return call.run()


@KINDS.around
def warning_added(call: Call) -> Any:
    """Warn."""
    result = call.run()
    warnings.warn("perturbed", UserWarning, stacklevel=2)
    return result


@KINDS.around
def warnings_dropped(call: Call) -> Any:
    """Drop the warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call.run()
