"""The browser and the checker of accessibility; where one is missing, the run ends and says so."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["axe", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_AXE = "axe-core@4"


def chromium() -> str:
    """The system's Chromium, or the one that ``CHROMIUM`` names."""
    named = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, [named] if named else _NAMES)), None)
    if found is None:
        _end("Chromium is missing: apt-get install chromium, or name one in CHROMIUM")
    return str(found)


def axe(folder: Path) -> str:
    """The text of axe-core, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        _end("npm is missing, which fetches axe-core: apt-get install npm")
    command = [str(npm), "install", "--no-save", "--silent", "--prefix", str(folder), _AXE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        _end(f"axe-core is missing, npm gave none: {done.stderr.strip()[-500:]}")
    return script.read_text(encoding="utf-8")


def _end(text: str) -> None:
    pytest.exit(f"the site cannot be tested: {text}", returncode=1)
