"""The differences from the CPU that the sweep allows, read from ``allowed_differences.toml``."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .trial import Trial

__all__ = ["AllowedDifferences", "AllowedError", "load"]

FILE = Path(__file__).with_name("allowed_differences.toml")


@dataclass(frozen=True)
class AllowedError:
    """Operators that raise NotImplementedError. A listed operator that works is a problem, too.

    Args:
        operators: Names in PyTorch's database. Some releases of PyTorch lack some of them.
        dtypes: The dtypes for which the operators raise the error.
        message: A text that every error message contains.
        reason: Why sim does not implement the operators.
    """

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    message: str
    reason: str


@dataclass(frozen=True)
class AllowedDifferences:
    """The contents of ``allowed_differences.toml``.

    Args:
        errors: Operators that raise NotImplementedError.
        uninitialized: Operators that return uninitialized memory.
        other_kernels: Operators for which PyTorch's CPU kernel differs from the kernel of all
            other devices. Values are compared with a larger tolerance, strides are not compared.
    """

    errors: tuple[AllowedError, ...]
    uninitialized: frozenset[str]
    other_kernels: frozenset[str]

    def find_problem(self, operator: str, dtype: str, outcomes: Sequence[Trial]) -> str | None:
        """Return a text about the first difference that is not allowed; None if there is none.

        If a listed operator no longer raises its error, the text says so.
        """
        for outcome in outcomes:
            if outcome.verdict == "differs":
                return outcome.detail
        messages = [outcome.detail for outcome in outcomes if outcome.verdict == "unimplemented"]
        listed = [
            error for error in self.errors if operator in error.operators and dtype in error.dtypes
        ]
        if listed and not messages:
            return "is listed as not implemented, but works"
        unlisted = [
            text for text in messages if not any(error.message in text for error in listed)
        ]
        return f"raises NotImplementedError: {unlisted[0]}" if unlisted else None


def load(path: Path = FILE) -> AllowedDifferences:
    """Read the file. Each table ``error`` has the fields of `AllowedError`."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return AllowedDifferences(
        tuple(_make_allowed_error(table) for table in tables.get("error", [])),
        frozenset(tables["uninitialized"]["operators"]),
        frozenset(tables["other_kernels"]["operators"]),
    )


def _make_allowed_error(table: dict[str, object]) -> AllowedError:
    fields = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
    }
    return AllowedError(**fields)  # type: ignore[arg-type] # a wrong or missing key raises TypeError
