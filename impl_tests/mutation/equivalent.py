"""The recorded changes that no caller of impl can notice, each with the reason."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from impl_tests.mutation.changes import Change

RECORDS = Path(__file__).with_name("equivalent.toml")


def load(changes: Mapping[str, Change], text: str | None = None) -> dict[str, str]:
    """Return name -> reason for the recorded changes to the files that ``changes`` covers.

    Args:
        changes: Name -> change, for all changes to some files of impl.
        text: The records in TOML; by default the text of ``equivalent.toml``.

    Raises:
        ValueError: A record names an unknown change, repeats a change, or has no reason.
    """
    records = tomllib.loads(RECORDS.read_text(encoding="utf-8") if text is None else text)
    files = {change.file for change in changes.values()}
    reasons: dict[str, str] = {}
    for record in records.get("equivalent", []):
        reason = record.get("reason", "").strip()
        for name in record["changes"]:
            if name.partition(" ")[0] not in files:
                continue
            if not reason:
                raise ValueError(f"equivalent.toml: no reason for {name}")
            if name not in changes or name in reasons:
                raise ValueError(f"equivalent.toml: no such change, or named twice: {name}")
            reasons[name] = reason
    return reasons
