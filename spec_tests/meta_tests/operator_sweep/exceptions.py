"""Operators whose results differ from the CPU on purpose, as ``exceptions.toml`` lists them."""

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
        operators: Names in PyTorch's database; a PyTorch version may lack some.
        dtypes: The dtypes with which the operators raise.
        message: A part of every error message.
        reason: Why sim does not implement the operators.
    """

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    message: str
    reason: str


@dataclass(frozen=True)
class Exceptions:
    """The contents of ``exceptions.toml``.

    Args:
        errors: The operators that raise NotImplementedError.
        uninitialized: Operators that return uninitialized memory, so values are not compared.
        other_kernels: Operators for which PyTorch uses a different kernel on the CPU than on other
            devices: the tolerance is larger, and strides are not compared.
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
    """Read the file. The keys of a table ``error`` are the fields of `ListedError`."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return Exceptions(
        tuple(_listed_error(table) for table in tables.get("error", [])),
        frozenset(tables["uninitialized"]["operators"]),
        frozenset(tables["other_kernels"]["operators"]),
    )


def _listed_error(table: dict[str, object]) -> ListedError:
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
    return ListedError(**fields)  # type: ignore[arg-type] # a wrong or missing key raises
