"""What several of these files are tried with."""

from typing import Any, NamedTuple

from torch.overrides import TorchFunctionMode


class Pair(NamedTuple):
    """Two members, by name."""

    left: Any
    right: Any


class Misnamed(tuple):
    """A tuple that says of itself that it has one member."""

    _fields = ("first",)
    _asdict = None


class FunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def fail_with(error):
    """Raise ``error``."""
    raise error
