"""Intended differences from the CPU, and the check that they still exist."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .trial import Outcome

__all__ = ["Exceptions", "Refusal", "load"]

FILE = Path(__file__).with_name("exceptions.toml")


@dataclass(frozen=True)
class Refusal:
    """Operators that raise NotImplementedError.

    Args:
        operators: The names in PyTorch's database; a release may lack some.
        dtypes: The dtypes for which they raise it.
        says: A part of every error message.
        reason: The reason for not implementing them.
    """

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    says: str
    reason: str


@dataclass(frozen=True)
class Exceptions:
    """The contents of ``exceptions.toml``.

    Args:
        refusals: Operators that raise NotImplementedError.
        uninitialised: Operators that return uninitialized memory.
        other_kernels: Operators for which PyTorch's CPU kernel differs from the kernel of all
            other devices. Values are compared with a larger tolerance, strides are not compared.
    """

    refusals: tuple[Refusal, ...]
    uninitialised: frozenset[str]
    other_kernels: frozenset[str]

    def complaint(self, operator: str, dtype: str, outcomes: Sequence[Outcome]) -> str | None:
        """Return the first problem among the outcomes of an operator's calls, or None."""
        for outcome in outcomes:
            if outcome.verdict == "differs":
                return outcome.detail
        refused = [outcome.detail for outcome in outcomes if outcome.verdict == "refused"]
        listed = [r for r in self.refusals if operator in r.operators and dtype in r.dtypes]
        if listed and not refused:
            return "is listed as refused, but works"
        unlisted = [text for text in refused if not any(r.says in text for r in listed)]
        return f"is refused: {unlisted[0]}" if unlisted else None


def load(path: Path = FILE) -> Exceptions:
    """Read the file; a table ``refusal`` has the fields of `Refusal`."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return Exceptions(
        tuple(_refusal(table) for table in tables.get("refusal", [])),
        frozenset(tables["uninitialised"]["operators"]),
        frozenset(tables["other_kernels"]["operators"]),
    )


def _refusal(table: dict[str, object]) -> Refusal:
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
    return Refusal(**fields)  # type: ignore[arg-type] # a wrong key or a missing one raises
