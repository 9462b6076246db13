"""Run the programs of docs/language_models.md.

``python -m impl_tests.consumers.language_models DEVICES`` runs all blocks in order, with the
value of their variable ``devices`` replaced, and prints their number.
"""

import re
import sys
from pathlib import Path

from impl_tests.consumers.processes import prepare

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "language_models.md"
_BLOCK = re.compile(r"^```python3\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _run(devices: str) -> int:
    blocks: list[str] = _BLOCK.findall(_PAGE.read_text(encoding="utf-8"))
    text, count = re.subn(r"(?m)^devices = .*", f"devices = {devices}", "\n".join(blocks))
    assert count == 1, "the page sets `devices` once"
    exec(compile(text, str(_PAGE), "exec"), {"__name__": "page"})
    return len(blocks)


if __name__ == "__main__":
    prepare()
    print(_run(sys.argv[1]))
