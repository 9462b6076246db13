"""The changes without an effect that a caller can see, each with the reason."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from impl_tests.mutation.changes import Change

RECORDS = Path(__file__).with_name("equivalent.toml")


def load(found: Mapping[str, Change], text: str | None = None) -> dict[str, str]:
    """Return the reasons by the changes' names, for the files that ``found`` changes.

    Args:
        found: All changes to these files.
        text: The records in TOML; by default ``equivalent.toml``.

    Raises:
        ValueError: A record names no change, or names one twice, or has no reason.
    """
    records = tomllib.loads(RECORDS.read_text(encoding="utf-8") if text is None else text)
    files = {change.file for change in found.values()}
    reasons: dict[str, str] = {}
    for record in records.get("equivalent", []):
        reason = record.get("reason", "").strip()
        for name in record["changes"]:
            if name.partition(" ")[0] not in files:
                continue
            if not reason:
                raise ValueError(f"equivalent.toml: no reason for {name}")
            if name not in found or name in reasons:
                raise ValueError(f"equivalent.toml: no such change, or named twice: {name}")
            reasons[name] = reason
    return reasons
