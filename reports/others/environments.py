"""Create a virtual environment for each implementation."""

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

__all__ = ["install_torch", "pip", "prepare_environment"]

#: Requirements of a CUDA build that the CPU does not need; most are CUDA's libraries, 2 GB.
CUDA = re.compile(r"cuda|nvidia|triton")
#: The file that lists the contents of a complete environment.
STAMP = "made.json"


def prepare_environment(implementation: Implementation, environments: Path) -> Path:
    """Create the virtual environment of an implementation if needed; return its interpreter."""
    folder = environments / implementation.name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    contents = json.dumps([_installed(implementation), _suite_requirements()], sort_keys=True)
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text() != contents:
        print(f"{implementation.name}: creating {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        _install_requirements(implementation, python)
        stamp.write_text(contents)
    return python


def _installed(implementation: Implementation) -> dict[str, Any]:
    """Return the fields that decide the content of the environment."""
    about = asdict(implementation)
    return {key: about[key] for key in ("torch", "install", "build", "settings")}


def _install_requirements(implementation: Implementation, python: Path) -> None:
    install_torch(implementation.torch, python)
    pip(python, *_suite_requirements())
    if implementation.build:
        pip(python, *implementation.build)
    if implementation.install:
        options = ["--no-build-isolation"] if implementation.build else []
        pip(python, *options, *implementation.install, settings=implementation.settings)


def _suite_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements: list[str] = project["optional-dependencies"]["suite"]
    return requirements


def install_torch(version: str, python: Path) -> None:
    """Install the CPU build of PyTorch, or the CUDA build without CUDA's libraries."""
    if pip(python, f"torch=={version}+cpu", check=False):
        return
    pip(python, "--no-deps", f"torch=={version}")
    pip(python, *(it for it in _requirements(python) if not CUDA.search(it)))
    library = _run_python(python, "import importlib.util as u; print(u.find_spec('torch').origin)")
    stub_libraries = ROOT / ".ci" / "without_cuda.py"
    subprocess.run([sys.executable, stub_libraries, Path(library).parent / "lib"], check=True)


def _requirements(python: Path) -> Iterable[str]:
    """Return the requirements of PyTorch, without extras; pip evaluates their markers."""
    program = "import importlib.metadata as m; print('\\n'.join(m.requires('torch')))"
    return [line for line in _run_python(python, program).splitlines() if "extra ==" not in line]


def _run_python(python: Path, program: str) -> str:
    done = subprocess.run([python, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def pip(
    python: Path,
    *requirements: str,
    settings: Mapping[str, str] | None = None,
    check: bool = True,
) -> bool:
    """Install ``requirements`` and return whether pip succeeded."""
    options = ["install", "-q", "--disable-pip-version-check"]
    command: list[str | Path] = [python, "-m", "pip", *options, *requirements]
    environment = {**os.environ, **(settings or {})}
    stderr = None if check else subprocess.DEVNULL
    return subprocess.run(command, env=environment, stderr=stderr, check=check).returncode == 0
