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

#: Matches the names of packages that a CUDA build needs only on a GPU: CUDA's libraries (2 GB) and
#: Triton.
CUDA = re.compile(r"cuda|nvidia|triton")
#: File in a completely installed environment. It lists the requirements that were installed.
STAMP = "made.json"


def prepare_environment(implementation: Implementation, environments_folder: Path) -> Path:
    """Create the virtual environment if it is missing or outdated; return its Python."""
    folder = environments_folder / implementation.name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    contents = json.dumps(
        [_environment_key(implementation), _suite_requirements()], sort_keys=True
    )
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text() != contents:
        print(f"{implementation.name}: creating {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        _install_requirements(implementation, python)
        stamp.write_text(contents)
    return python


def _environment_key(implementation: Implementation) -> dict[str, Any]:
    """Return the fields that determine what is installed. A change recreates the environment."""
    fields = asdict(implementation)
    return {key: fields[key] for key in ("torch", "install", "build", "settings")}


def _install_requirements(implementation: Implementation, python: Path) -> None:
    install_torch(implementation.torch, python)
    pip(python, *_suite_requirements())
    if implementation.build:
        pip(python, *implementation.build)
    if implementation.install:
        options = ["--no-build-isolation"] if implementation.build else []
        pip(python, *options, *implementation.install, extra_env=implementation.settings)


def _suite_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements: list[str] = project["optional-dependencies"]["suite"]
    return requirements


def install_torch(version: str, python: Path) -> None:
    """Install PyTorch's CPU build or, if there is none, its CUDA build with stubs for CUDA."""
    if pip(python, f"torch=={version}+cpu", check=False):
        return
    pip(python, "--no-deps", f"torch=={version}")
    pip(python, *(line for line in _torch_requirements(python) if not CUDA.search(line)))
    library = _run_python(python, "import importlib.util as u; print(u.find_spec('torch').origin)")
    stub_libraries = ROOT / ".ci" / "without_cuda.py"
    subprocess.run([sys.executable, stub_libraries, Path(library).parent / "lib"], check=True)


def _torch_requirements(python: Path) -> Iterable[str]:
    """Return PyTorch's requirements as PyTorch declares them, without those of extras."""
    program = "import importlib.metadata as m; print('\\n'.join(m.requires('torch')))"
    return [line for line in _run_python(python, program).splitlines() if "extra ==" not in line]


def _run_python(python: Path, program: str) -> str:
    done = subprocess.run([python, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def pip(
    python: Path,
    *requirements: str,
    extra_env: Mapping[str, str] | None = None,
    check: bool = True,
) -> bool:
    """Install ``requirements``; return whether pip succeeded.

    Args:
        python: The environment's Python.
        requirements: Requirements or options of ``pip install``.
        extra_env: Additional environment variables.
        check: Whether to raise if pip fails. If not, pip's error output is discarded.
    """
    options = ["install", "-q", "--disable-pip-version-check"]
    command: list[str | Path] = [python, "-m", "pip", *options, *requirements]
    environment = {**os.environ, **(extra_env or {})}
    stderr = None if check else subprocess.DEVNULL
    return subprocess.run(command, env=environment, stderr=stderr, check=check).returncode == 0
