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


class CountingLock:
    """Counts how often it is taken, and keeps nobody out.

    Attributes:
        count: That number.
    """

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        pass


def fail_with(error: BaseException) -> NoReturn:
    """Raise ``error``."""
    raise error
