"""Find Chromium and axe-core; end the test run with a message if one is missing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["find_chromium", "install_axe"]

#: Names of Chromium's program.
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: Name and version of the npm package axe-core.
_AXE = "axe-core@4"


def find_chromium() -> str:
    """Return the path of the program in ``CHROMIUM``, or else of the system's Chromium."""
    program = os.environ.get("CHROMIUM")
    path = next(filter(None, map(shutil.which, [program] if program else _PROGRAMS)), None)
    if path is None:
        _exit_with_message(
            "Chromium is missing: apt-get install chromium, or name one in CHROMIUM"
        )
    return str(path)


def install_axe(folder: Path) -> str:
    """Install axe-core in ``folder`` with npm; return its JavaScript source."""
    npm = shutil.which("npm")
    if npm is None:
        _exit_with_message("npm is missing (it installs axe-core): apt-get install npm")
    command = [str(npm), "install", "--no-save", "--silent", "--prefix", str(folder), _AXE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        _exit_with_message(f"npm did not install axe-core: {done.stderr.strip()[-500:]}")
    return script.read_text(encoding="utf-8")


def _exit_with_message(text: str) -> None:
    pytest.exit(f"the site cannot be tested: {text}", returncode=1)
