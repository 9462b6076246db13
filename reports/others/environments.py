"""Create virtual environments: for each implementation, or from another Python."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from reports.others.catalogue import ROOT, Implementation

#: Matches the names of packages that a CUDA build needs only on a GPU: CUDA's libraries (2 GB) and
#: Triton.
CUDA = re.compile(r"cuda|nvidia|triton")
#: File in a completely installed environment, with the contents of the environment.
STAMP = "made.json"


def prepare_environment(
    implementation: Implementation, environments_folder: Path, base_python: str = sys.executable
) -> Path:
    """Create the virtual environment of an implementation, if it is missing; return its Python."""
    fields = asdict(implementation)
    installed = {key: fields[key] for key in ("torch", "install", "build", "settings")}
    return create_environment(
        environments_folder / implementation.environment,
        [installed, _suite_requirements()],
        partial(_install_requirements, implementation),
        base_python,
    )


def create_environment(
    folder: Path,
    contents: object,
    install: Callable[[Path], None],
    base_python: str = sys.executable,
) -> Path:
    """Create a virtual environment, unless the folder has one with the same contents.

    Args:
        folder: The folder of the environment.
        contents: Data, as for JSON, that determine what is installed.
        install: A function that installs it. Its argument is the environment's Python.
        base_python: The interpreter from which the environment is created.

    Returns:
        The environment's Python.
    """
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp, text = folder / STAMP, json.dumps(contents, sort_keys=True)
    if not stamp.exists() or stamp.read_text() != text:
        print(f"creating {folder}", flush=True)
        subprocess.run([base_python, "-m", "venv", "--clear", folder], check=True)
        install(python)
        stamp.write_text(text)
    return python


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
    folder = Path(library).parent / "lib"
    # As `tox -e cuda-build` does.
    program = ROOT / "spec_tests/cuda_stand_ins/stub_libraries.py"
    subprocess.run([sys.executable, program, folder], check=True)


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
