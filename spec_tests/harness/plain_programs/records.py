"""The records of the operators that tests call."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_tests.harness.plain_programs.operator_call import OperatorCall

__all__ = ["RecordedCall", "read"]


@dataclass(frozen=True)
class RecordedCall:
    """A call of an operator.

    Args:
        test: The node id of the test.
        call: The call.
        error: Class and text of the error; empty if there is none.
        ended: Whether the call returned or raised an error.
    """

    test: str
    call: OperatorCall
    error: str
    ended: bool


def read(path: Path) -> list[RecordedCall]:
    """Return the records of a file of `recorder`, in the order of the calls."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    # A process that ends may leave a part of a line.
    complete = [line for line in text.split("\n")[:-1] if line.endswith("}")]
    return list(_parse([json.loads(line) for line in complete]))


def _parse(lines: list[dict[str, Any]]) -> Iterator[RecordedCall]:
    errors = {line["ended"]: line.get("error", "") for line in lines if "ended" in line}
    tests: dict[int, str] = {}
    for line in lines:
        if "test" in line:
            tests[line["process"]] = line["test"]
        elif "started" in line:
            number = line["started"]
            test = tests.get(line["process"], "")
            yield RecordedCall(test, _call(line["call"]), errors.get(number, ""), number in errors)


def _call(table: Mapping[str, Any]) -> OperatorCall:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
    }
    return OperatorCall(**values)
