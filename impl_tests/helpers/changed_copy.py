"""Write a copy of impl in which one file has another text."""

import shutil
from pathlib import Path

__all__ = ["IMPL", "write_copy"]

IMPL = Path(__file__).resolve().parents[2] / "impl"


def write_copy(package: Path, file: str, text: str) -> None:
    """Write a copy of impl into the new folder ``package``, where ``file`` contains ``text``."""
    shutil.copytree(IMPL, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / file).write_text(text, encoding="utf-8")
