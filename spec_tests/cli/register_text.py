"""The text of registers: values as TOML, and a register without the tests that pass."""

import json
import re
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path

from spec_tests.harness import input_files

#: Matches the list of tests in the text of a record, and the list of what the target lacks.
_TESTS, _LACKS = (
    re.compile(rf"^{key} = \[.*?\]$", re.MULTILINE | re.DOTALL) for key in ("tests", "lacks")
)


def format_toml(value: str | Sequence[str]) -> str:
    """Return a string or list as TOML. JSON strings are valid TOML, except for DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(["[\n", *(f"    {format_toml(each)},\n" for each in value), "]"])


def without_passing(path: Path, passing: Collection[str], failing: Collection[str]) -> str:
    """Return the text of a register without the tests that pass, and without empty records.

    The rest of the text is that of the file. If a test passes with some of its parameters, the
    record names the parameters with which it fails.

    Args:
        path: The register.
        passing: The tests of records that pass, relative to ``spec_tests/``, with parameters.
        failing: The tests of records that fail.

    Raises:
        input_files.RefusedError: The tests of a record are not written as ``tests = […]``.
    """
    head, *blocks = re.split(
        r"^(?=\[\[divergence\]\])", input_files.read_text(path), flags=re.MULTILINE
    )
    kept = [head]
    for block in blocks:
        (record,) = tomllib.loads(block)["divergence"]
        left = [name for test in record["tests"] for name in _left(test, passing, failing)]
        if left != record["tests"]:
            text = f"tests = {format_toml(left)}"
            block = _TESTS.sub(lambda _, text=text: text, block, count=1)
            if tomllib.loads(block)["divergence"][0]["tests"] != left:
                problem = f"divergence {record['id']}: remove the tests that pass: {passing}"
                raise input_files.refuse(path, problem)
        if left:
            kept.append(block)
    return "".join(kept)


def _left(test: str, passing: Collection[str], failing: Collection[str]) -> Collection[str]:
    """Return the entries that replace the entry ``test`` of a record."""

    def is_of_test(name: str) -> bool:
        return test in (name, name.partition("[")[0])

    return sorted(filter(is_of_test, failing)) if any(map(is_of_test, passing)) else [test]


def with_lacks(text: str, lacks: Sequence[str]) -> str:
    """Return the text of a register with more entries of ``lacks``."""
    if not lacks:
        return text
    declared = tomllib.loads(text).get("lacks", [])
    line = f"lacks = {format_toml([*declared, *lacks])}"
    return _LACKS.sub(lambda _: line, text, count=1) if declared else f"{line}\n\n{text}"
