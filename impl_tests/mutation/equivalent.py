"""The changes that alter nothing a caller can see, each with the reason."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from impl_tests.mutation.changes import Change, name_of

RECORDS = Path(__file__).with_name("equivalent.toml")


def load(found: Mapping[str, Change], text: str | None = None) -> dict[str, str]:
    """The reasons by the changes' names, for the files that ``found`` changes.

    Args:
        found: All changes to these files.
        text: The records; by default those of ``equivalent.toml``.

    Raises:
        ValueError: A record names no change, or names one twice, or has no reason.
    """
    records = tomllib.loads(RECORDS.read_text(encoding="utf-8") if text is None else text)
    files = {change.file for change in found.values()}
    reasons: dict[str, str] = {}
    for each in records.get("equivalent", []):
        reason = each.pop("reason", "").strip()
        if each["file"] not in files:
            continue
        name = name_of(**each)
        if not reason:
            raise ValueError(f"equivalent.toml: no reason for {name}")
        if name not in found or name in reasons:
            raise ValueError(f"equivalent.toml: no such change, or a second record of it: {name}")
        reasons[name] = reason
    return reasons
