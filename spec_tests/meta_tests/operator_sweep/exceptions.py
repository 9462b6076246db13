"""Intended differences from the CPU, and the check that they still exist."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .trial import Outcome

__all__ = ["Exceptions", "ListedError", "load"]

FILE = Path(__file__).with_name("exceptions.toml")


@dataclass(frozen=True)
class ListedError:
    """Operators that raise NotImplementedError on purpose.

    Args:
        operators: The names in PyTorch's database; a release may lack some.
        dtypes: The dtypes for which they raise it.
        message: A part of every error message.
        reason: The reason for not implementing them.
    """

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    message: str
    reason: str


@dataclass(frozen=True)
class Exceptions:
    """The contents of ``exceptions.toml``.

    Args:
        errors: Operators that raise NotImplementedError.
        uninitialized: Operators that return uninitialized memory.
        other_kernels: Operators for which PyTorch's CPU kernel differs from the kernel of all
            other devices. Values are compared with a larger tolerance, strides are not compared.
    """

    errors: tuple[ListedError, ...]
    uninitialized: frozenset[str]
    other_kernels: frozenset[str]

    def find_problem(self, operator: str, dtype: str, outcomes: Sequence[Outcome]) -> str | None:
        """Return the first problem among the outcomes of an operator's calls, or None."""
        for outcome in outcomes:
            if outcome.verdict == "differs":
                return outcome.detail
        messages = [outcome.detail for outcome in outcomes if outcome.verdict == "unimplemented"]
        listed = [e for e in self.errors if operator in e.operators and dtype in e.dtypes]
        if listed and not messages:
            return "is listed as not implemented, but works"
        unlisted = [text for text in messages if not any(e.message in text for e in listed)]
        return f"raises NotImplementedError: {unlisted[0]}" if unlisted else None


def load(path: Path = FILE) -> Exceptions:
    """Read the file; a table ``error`` has the fields of `ListedError`."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return Exceptions(
        tuple(_listed_error(table) for table in tables.get("error", [])),
        frozenset(tables["uninitialized"]["operators"]),
        frozenset(tables["other_kernels"]["operators"]),
    )


def _listed_error(table: dict[str, object]) -> ListedError:
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
    return ListedError(**fields)  # type: ignore[arg-type] # a wrong key or a missing one raises
