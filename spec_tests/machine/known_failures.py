"""Tests whose failure a register records: their verdict is *known*, if they fail as expected."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from spec_tests.machine import causes
from spec_tests.machine.register import Divergence
from spec_tests.machine.target import missing_name

#: The class and the text of the failure of a test that ends its process.
PROCESS_ENDED = ("ProcessEnded", "the test ends the process")
#: The text about a test that passes although a record expects its failure.
PASSES = "names this test, but the test passes"
#: Key in the report of a test for the id of a record that expects this failure.
ENDS_PROCESS = "ends-process"

#: Key in the stash of a test for the records that expect its failure.
_KNOWN = pytest.StashKey[list[Divergence]]()


def mark(
    items: Iterable[pytest.Item], records: list[Divergence], root: Path, *, whole: bool
) -> None:
    """Mark the tests of ``records`` that apply to the installed version as expected failures.

    Args:
        items: The collected tests.
        records: The records of the register.
        root: The folder to which the node ids of records are relative.
        whole: Whether the whole suite was collected, so that each recorded parameter must exist.

    Raises:
        pytest.UsageError: a record names a test that does not exist. Parameters are checked only
            with ``whole``.
    """
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        for test in record.tests:
            if not is_defined(test, root):
                command = f"parallel-conformance draft --divergences {record.file}"
                raise _absent(record.name, test, f"`{command}` prints the register without it")
            places.setdefault(test, []).append(place)
    unused = {(record.name, test) for record in records for test in record.tests}
    for item in items:
        names = _node_ids(item, root)
        for place in sorted({place for name in names for place in places.get(name, ())}):
            record = records[place]
            unused -= {(record.name, name) for name in names}
            if not record.applies:
                continue
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"known: {record.id}"))
            item.stash.setdefault(_KNOWN, []).append(record)
            if record.explains_text(*PROCESS_ENDED):
                item.user_properties.append((ENDS_PROCESS, record.id))
    if whole and unused:
        raise _absent(*min(unused), "remove it from the record")


def is_defined(test: str, root: Path) -> bool:
    """Return whether the file of a test has its function. The file may not be collected."""
    file, _, name = test.partition("[")[0].partition("::")
    path = root / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


def _absent(record: str, test: str, remedy: str) -> pytest.UsageError:
    return pytest.UsageError(f"{record} names a test that does not exist: {test}; {remedy}")


def match_records(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Fail a test marked as expected failure if none of its records expects this failure.

    If such a test has passed, name the records in the report.
    """
    if call.excinfo is None and report.failed and _KNOWN in item.stash:
        report.longrepr = stale_text(item)
    if call.excinfo is None or not hasattr(report, "wasxfail"):
        return
    records = item.stash.get(_KNOWN, [])
    difference = causes.fingerprint(item, call.excinfo)
    if any(record.explains(call.excinfo.value, difference) for record in records):
        return
    report.outcome = "failed"
    # A test that uses a missing name gets the verdict not-offered.
    if missing_name(call.excinfo.value) is None:
        names = " and ".join(record.name for record in records)
        texts = [text for record in records for text in (*record.failures, *record.differences)]
        expected = " or ".join(map(repr, texts))
        text = f"{names} expects {expected}, but the failure is {difference!r}"
        report.longrepr = f"{report.longrepr}\n\n{text}"
        report.user_properties.append(("difference", text))
    del report.wasxfail


def stale_text(item: pytest.Item) -> str:
    """Return the sentence about a test that passes although records expect its failure."""
    names = " and ".join(record.name for record in item.stash.get(_KNOWN, []))
    return f"{names} {PASSES}: remove the test from the record"


def _node_ids(item: pytest.Item, root: Path) -> tuple[str, str]:
    """Return the node id of a test relative to ``root``, with and without its parameters."""
    # In an installed suite, the path in ``item.nodeid`` is relative to another folder.
    _, _, inside = item.nodeid.partition("::")
    name = f"{item.path.relative_to(root).as_posix()}::{inside}"
    return name, name.split("[", 1)[0]
