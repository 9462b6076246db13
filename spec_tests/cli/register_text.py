"""The text of registers: values as TOML, and a register without the tests that pass."""

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_tests.harness import input_files

#: Matches a list in the text of a register, such as ``tests = […]``, on lines of its own.
_LIST = r"^{} = \[.*?\]$"


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
        input_files.RefusedError: A list of tests is not on lines of its own.
    """
    head, *blocks = re.split(
        r"^(?=\[\[divergence\]\])", input_files.read_text(path), flags=re.MULTILINE
    )
    kept = [head]
    for block in blocks:
        (record,) = tomllib.loads(block)["divergence"]
        left = [name for test in record["tests"] for name in _left(test, passing, failing)]
        if left == record["tests"]:
            kept.append(block)
        elif left:
            changed = {"divergence": [{**record, "tests": left}]}
            kept.append(_with_list(path, block, "tests", left, changed))
    return "".join(kept)


def _left(test: str, passing: Collection[str], failing: Collection[str]) -> Collection[str]:
    """Return the entries that replace the entry ``test`` of a record."""

    def is_of_test(name: str) -> bool:
        return test in (name, name.partition("[")[0])

    return sorted(filter(is_of_test, failing)) if any(map(is_of_test, passing)) else [test]


def with_lacks(path: Path, text: str, lacks: Sequence[str]) -> str:
    """Return ``text``, the text of a register, with more entries of ``lacks``.

    Args:
        path: The register, for the text of an error.
        text: The text.
        lacks: The entries to add.

    Raises:
        input_files.RefusedError: The list ``lacks`` is not on lines of its own.
    """
    if not lacks:
        return text
    tables = tomllib.loads(text)
    if "lacks" not in tables:
        return f"lacks = {format_toml(lacks)}\n\n{text}"
    entries = [*tables["lacks"], *lacks]
    return _with_list(path, text, "lacks", entries, {**tables, "lacks": entries})


def _with_list(
    path: Path, text: str, key: str, values: Sequence[str], tables: Mapping[str, Any]
) -> str:
    """Return ``text`` with ``values`` in its first list ``key``. It then has these ``tables``."""
    pattern = re.compile(_LIST.format(key), re.MULTILINE | re.DOTALL)
    changed = pattern.sub(lambda _: f"{key} = {format_toml(values)}", text, count=1)
    # Behind a remark at the end of the list, the pattern matches up to the end of another list.
    if tomllib.loads(changed) != tables:
        raise input_files.refuse(path, f"write {key} = […] on lines of its own, without a remark")
    return changed
