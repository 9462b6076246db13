"""What is not as on the CPU, on purpose, and whether it is so still."""

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
        operators: Their names in PyTorch's database; a version may lack some.
        dtypes: The types in which they do.
        says: A part of every message.
        reason: Why that is as it should be.
    """

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    says: str
    reason: str


@dataclass(frozen=True)
class Exceptions:
    """The contents of ``exceptions.toml``.

    Args:
        refusals: What raises NotImplementedError.
        uninitialised: Operators whose numbers nobody sets.
        other_kernels: Operators for which PyTorch has another kernel on the CPU than on all
            other devices: numbers agree more loosely, strides need not.
    """

    refusals: tuple[Refusal, ...]
    uninitialised: frozenset[str]
    other_kernels: frozenset[str]

    def complaint(self, operator: str, dtype: str, outcomes: Sequence[Outcome]) -> str | None:
        """Say what is wrong with the outcomes of an operator's calls, if anything is."""
        for outcome in outcomes:
            if outcome.verdict == "differs":
                return outcome.detail
        refused = [outcome.detail for outcome in outcomes if outcome.verdict == "refused"]
        listed = [r for r in self.refusals if operator in r.operators and dtype in r.dtypes]
        if listed and not refused:
            return "is listed as refused, and works"
        unforeseen = [text for text in refused if not any(r.says in text for r in listed)]
        return f"is refused: {unforeseen[0]}" if unforeseen else None


def load(path: Path = FILE) -> Exceptions:
    """Read the file; the schema of a refusal is the fields of `Refusal`."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return Exceptions(
        tuple(_refusal(table) for table in tables.get("refusal", [])),
        frozenset(tables["uninitialised"]["operators"]),
        frozenset(tables["other_kernels"]["operators"]),
    )


def _refusal(table: dict[str, object]) -> Refusal:
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
    return Refusal(**fields)  # type: ignore[arg-type] # a wrong key or a missing one raises
