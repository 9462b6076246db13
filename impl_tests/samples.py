"""What several of these files are tried with."""

from typing import Any, NamedTuple, NoReturn

from torch.overrides import TorchFunctionMode


class Pair(NamedTuple):
    """Two members, by name."""

    left: Any
    right: Any


class Misnamed(tuple[Any, ...]):
    """A tuple that says of itself that it has one member."""

    _fields = ("first",)
    _asdict = None


class FunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def fail_with(error: BaseException) -> NoReturn:
    """Raise ``error``."""
    raise error
