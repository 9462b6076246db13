"""Find the browser and axe-core; end the run with a message if one is missing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["axe", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_AXE = "axe-core@4"


def chromium() -> str:
    """Return the path of the system's Chromium, or the value of ``CHROMIUM``."""
    named = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, [named] if named else _NAMES)), None)
    if found is None:
        _exit("Chromium is missing: apt-get install chromium, or name one in CHROMIUM")
    return str(found)


def axe(folder: Path) -> str:
    """Return the source of axe-core, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        _exit("npm is missing (it installs axe-core): apt-get install npm")
    command = [str(npm), "install", "--no-save", "--silent", "--prefix", str(folder), _AXE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        _exit(f"npm did not install axe-core: {done.stderr.strip()[-500:]}")
    return script.read_text(encoding="utf-8")


def _exit(text: str) -> None:
    pytest.exit(f"the site cannot be tested: {text}", returncode=1)
