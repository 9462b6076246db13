"""An environment of its own for each implementation, made once."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reports.others.catalogue import ROOT, Implementation

__all__ = ["install_torch", "pip", "python_of"]

#: What a CUDA build requires that the CPU does not; most of it is CUDA's, 2 GB.
CUDA = re.compile(r"cuda|nvidia|triton")
#: Written when everything is there.
STAMP = "made.json"


def python_of(wanted: Implementation, home: Path) -> Path:
    """The interpreter of its environment below ``home``, which is made if it is not there."""
    folder = home / wanted.name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    needs = json.dumps([_installed(wanted), _needs_of_suite()], sort_keys=True)
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text() != needs:
        print(f"{wanted.name}: making {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        _fill(wanted, python)
        stamp.write_text(needs)
    return python


def _installed(wanted: Implementation) -> dict[str, Any]:
    """What decides what is in the environment; what is said of an implementation does not."""
    about = asdict(wanted)
    return {key: about[key] for key in ("torch", "install", "build", "settings")}


def _fill(wanted: Implementation, python: Path) -> None:
    install_torch(wanted.torch, python)
    pip(python, *_needs_of_suite())
    if wanted.build:
        pip(python, *wanted.build)
    if wanted.install:
        plain = ["--no-build-isolation"] if wanted.build else []
        pip(python, *plain, *wanted.install, settings=wanted.settings)


def _needs_of_suite() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs: list[str] = project["optional-dependencies"]["suite"]
    return needs


def install_torch(version: str, python: Path) -> None:
    """Install the CPU build; where the index has none, the CUDA build without CUDA."""
    if pip(python, f"torch=={version}+cpu", check=False):
        return
    pip(python, "--no-deps", f"torch=={version}")
    pip(python, *(need for need in _requirements(python) if not CUDA.search(need)))
    library = _ask(python, "import importlib.util as u; print(u.find_spec('torch').origin)")
    hollow = ROOT / ".ci" / "without_cuda.py"
    subprocess.run([sys.executable, hollow, Path(library).parent / "lib"], check=True)


def _requirements(python: Path) -> Iterable[str]:
    """What PyTorch requires, without extras; conditions are left to pip."""
    program = "import importlib.metadata as m; print('\\n'.join(m.requires('torch')))"
    return [line for line in _ask(python, program).splitlines() if "extra ==" not in line]


def _ask(python: Path, program: str) -> str:
    done = subprocess.run([python, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def pip(
    python: Path, *what: str, settings: Mapping[str, str] | None = None, check: bool = True
) -> bool:
    """Install, and tell whether that could be done."""
    command: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        *what,
    ]
    environment = {**os.environ, **(settings or {})}
    quiet = None if check else subprocess.DEVNULL
    return subprocess.run(command, env=environment, stderr=quiet, check=check).returncode == 0
