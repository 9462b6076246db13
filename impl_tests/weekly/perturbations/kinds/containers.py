"""Kinds that change the containers of a result, or the number or order of their members."""

import copy
from collections import OrderedDict
from typing import Any

from impl_tests.weekly.perturbations.kinds.registry import of_result


@of_result
def other_container(result: Any) -> Any:
    """Return a tuple in place of a list, a list in place of a tuple, or another mapping."""
    if isinstance(result, tuple):
        return list(result)
    if isinstance(result, list):
        return tuple(result)
    return OrderedDict(result) if type(result) is dict else dict(result)


@of_result
def container_of_a_subclass(result: Any) -> Any:
    """Return an instance of a subclass with the same name."""
    kind = type(result)
    names = {"__module__": kind.__module__}
    return (
        type(kind.__name__, (kind,), names)(result)
        if isinstance(result, (tuple, list))
        else result
    )


@of_result
def other_member_containers(result: Any) -> Any:
    """Change the classes of the containers in the result."""
    return type(result)([other_container(member) for member in result])


@of_result
def members_missing(result: Any) -> Any:
    """Leave out the last member of each member."""
    return type(result)([member[:-1] for member in result])


@of_result
def rotated(result: Any) -> Any:
    """Return the last member first."""
    return type(result)([result[-1], *result[:-1]])


@of_result
def deepcopied(result: Any) -> Any:
    """Return a deep copy."""
    return copy.deepcopy(result)
