"""Registers: the known divergences of a target, one record each. Records are strict.

A record turns the failure of its tests into the verdict *known*. If one of the tests passes, the
run fails, so that the record of a repaired divergence is removed.

The register of a package that is built on another one inherits the records of the other,
``inherits = "torch.nn.parallel"``, except for the tests in its list ``repaired``.

``lacks = ["distributed"]`` declares clauses, by id or by the beginning of their ids, that the
target does not offer; see `not_offered`. It is not inherited.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from spec_tests.harness.conformance.clauses import Clause
from spec_tests.harness.environment.target import lacking

FOLDER = Path(__file__).parents[2] / "registers"
#: The records that name a test.
_KNOWN = pytest.StashKey[list["Divergence"]]()
KINDS = ("fix", "extends", "defined", "target-bug", "suite-bug")


@dataclass(frozen=True)
class Divergence:
    """A known divergence.

    Args:
        id: Its name, such as ``SG-1``.
        kind: ``fix`` (the target is wrong), ``extends`` (it refuses what the specification
            serves), ``defined`` (undefined there), ``target-bug``, ``suite-bug``.
        clause: The clause that the target violates.
        tests: Node ids of the failing tests, relative to ``spec_tests/``, without parameters.
        failures: The expected failures, each the exception's class and a part of its text:
            ``RuntimeError: chunk expects``. Any other failure fails the run.
        specified: The behaviour that the clause specifies.
        observed: The behaviour of the target.
        threads: Links of public threads.
        versions: The versions of the target on which it was observed.
        review_by: The ISO date of the next review.
    """

    id: str
    kind: str
    clause: str
    tests: tuple[str, ...]
    failures: tuple[str, ...]
    specified: str
    observed: str
    threads: tuple[str, ...]
    versions: str
    review_by: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise pytest.UsageError(f"divergence {self.id}: kind {self.kind!r} is none of {KINDS}")
        if not self.failures:
            raise pytest.UsageError(f"divergence {self.id} has no failures")

    def explains(self, error: BaseException) -> bool:
        """Whether ``error`` is one of the expected failures."""
        ways = [failure.partition(": ") for failure in self.failures]
        return any(type(error).__name__ == kind and text in str(error) for kind, _, text in ways)


def load(path: Path) -> list[Divergence]:
    """Return the records of a register, inherited ones first; the keys are `Divergence`'s fields.

    Raises:
        pytest.UsageError: a record lacks a field or has an unknown one.
    """
    text = _read(path)
    return [*_inherited(text, path), *(_record(each, path) for each in text.get("divergence", []))]


def _inherited(text: Mapping[str, Any], path: Path) -> list[Divergence]:
    """Return the inherited records without the repaired tests."""
    if "inherits" not in text:
        return []
    repaired = set(text.get("repaired", ()))
    records = load(FOLDER / f"{text['inherits']}.toml")
    stale = repaired - {test for record in records for test in record.tests}
    if stale:
        raise pytest.UsageError(f"{path}: no inherited record names {min(stale)}")
    left = [tuple(test for test in record.tests if test not in repaired) for record in records]
    return [replace(each, tests=tests) for each, tests in zip(records, left, strict=True) if tests]


def titles(path: Path) -> Mapping[str, str]:
    """Return the titles of a register by id of the divergence; a register may have none."""
    found: dict[str, str] = _read(path).get("titles", {})
    return found


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _record(table: dict[str, Any], path: Path) -> Divergence:
    try:
        changed: dict[str, Any] = {
            key: tuple(table[key]) for key in ("tests", "failures", "threads") if key in table
        }
        if "review_by" in table:
            changed["review_by"] = str(table["review_by"])
        return Divergence(**{**table, **changed})
    except TypeError as error:
        name = table.get("id", "without an id")
        raise pytest.UsageError(f"{path}: divergence {name}: {error}") from None


def lacks(path: Path, known: Mapping[str, Clause]) -> dict[str, str]:
    """Return, for each clause that a register declares as lacking, the entry that does so.

    Raises:
        pytest.UsageError: an entry names no clause, or only clauses that another one declares.
    """
    found: dict[str, str] = {}
    for entry in _read(path).get("lacks", []):
        below = [each.id for each in known.values() if each.is_below(entry)]
        if not below:
            raise pytest.UsageError(f'{path}: lacks "{entry}": no clause has this name')
        if below[0] in found:
            other = found[below[0]]
            raise pytest.UsageError(f'{path}: lacks "{entry}": "{other}" declares it already')
        found |= dict.fromkeys(below, entry)
    return found


def path_of(target: str, option: str | None) -> Path | None:
    """Return the file of ``--divergences``, else the register that the suite keeps, if any.

    Raises:
        pytest.UsageError: the option names no file.
    """
    path = Path(option) if option else FOLDER / f"{target}.toml"
    if path.exists():
        return path
    if option:
        raise pytest.UsageError(f"--divergences {option}: no such file")
    return None


def mark(
    items: Iterable[pytest.Item], records: list[Divergence], home: Path, *, whole: bool
) -> None:
    """Mark the tests of ``records`` as expected failures.

    Args:
        items: The collected tests.
        records: The records of the register.
        home: The folder to which the node ids of records are relative.
        whole: Whether the whole suite was collected.

    Raises:
        pytest.UsageError: a record names a test that the whole suite does not contain.
    """
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        for test in record.tests:
            places.setdefault(test, []).append(place)
    unused = {(record.id, test) for record in records for test in record.tests}
    for item in items:
        names = _names(item, home)
        for place in sorted({place for name in names for place in places.get(name, ())}):
            record = records[place]
            unused -= {(record.id, name) for name in names}
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"known: {record.id}"))
            item.stash.setdefault(_KNOWN, []).append(record)
    if whole and unused:
        record_id, test = min(unused)
        raise pytest.UsageError(f"divergence {record_id} names no collected test: {test}")


def judge(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Fail a test whose failure is not one that its records expect."""
    if call.excinfo is None or not hasattr(report, "wasxfail"):
        return
    records = item.stash.get(_KNOWN, [])
    if any(record.explains(call.excinfo.value) for record in records):
        return
    report.outcome = "failed"
    if lacking(call.excinfo.value) is None:  # else its verdict is not-offered
        ways = [failure for record in records for failure in record.failures]
        report.longrepr = f"{report.longrepr}\n\n{report.wasxfail}, but the records expect {ways}"
    del report.wasxfail


def _names(item: pytest.Item, home: Path) -> tuple[str, str]:
    """Return the node id of a test relative to ``home``, with and without its parameters."""
    # In an installed suite ``item.nodeid`` is relative to another folder.
    _, _, inside = item.nodeid.partition("::")
    name = f"{item.path.relative_to(home).as_posix()}::{inside}"
    return name, name.split("[", 1)[0]
