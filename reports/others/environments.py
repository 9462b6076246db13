"""Create virtual environments: for each implementation, or from another Python."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from reports.others.catalogue import ROOT, Implementation

#: Matches the requirements of extras, and those that a CUDA build needs only on a GPU: CUDA's
#: libraries (2 GB) and Triton.
NOT_INSTALLED = re.compile(r"cuda|nvidia|triton|extra ==")
#: A program that prints the path of PyTorch and its requirements. It does not import PyTorch.
_DESCRIBE_TORCH = """
from importlib import metadata, util
print(util.find_spec("torch").origin, *metadata.requires("torch"), sep="\\n")
"""
#: File in a completely installed environment, with the contents of the environment.
STAMP = "made.json"


def prepare_environment(implementation: Implementation, environments_folder: Path) -> Path:
    """Create the virtual environment of an implementation, if it is missing; return its Python.

    Implementations that install nothing but PyTorch share the environment of its release.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    calls = [project["optional-dependencies"]["suite"], *implementation.install]

    def install(python: Path) -> None:
        install_torch(implementation.torch, python)
        for requirements in calls:
            pip(python, *requirements, extra_env=implementation.settings)

    name = implementation.name if implementation.install else f"torch-{implementation.torch}"
    folder = environments_folder / implementation.python / name
    contents = [implementation.torch, calls, implementation.settings]
    return create_environment(folder, contents, install, implementation.python or sys.executable)


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
        install: A function that installs it with the environment's Python, which is also returned.
        base_python: The interpreter from which the environment is created.
    """
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp, text = folder / STAMP, json.dumps(contents, sort_keys=True)
    if not stamp.exists() or stamp.read_text() != text:
        print(f"creating {folder}", flush=True)
        subprocess.run([base_python, "-m", "venv", "--clear", folder], check=True)
        install(python)
        stamp.write_text(text)
    return python


def install_torch(version: str, python: Path) -> None:
    """Install PyTorch's CPU build or, if there is none, its CUDA build with stubs for CUDA."""
    if pip(python, f"torch=={version}+cpu", check=False):
        return
    pip(python, "--no-deps", f"torch=={version}")
    done = subprocess.run(
        [python, "-c", _DESCRIBE_TORCH], check=True, capture_output=True, text=True
    )
    file, *requirements = done.stdout.splitlines()
    pip(python, *(line for line in requirements if not NOT_INSTALLED.search(line)))
    # As `tox -e cuda-build` does.
    program = ROOT / "spec_tests/cuda_stand_ins/stub_libraries.py"
    subprocess.run([sys.executable, program, Path(file).parent / "lib"], check=True)


def pip(
    python: Path,
    *requirements: str,
    extra_env: Mapping[str, str] | None = None,
    check: bool = True,
) -> bool:
    """Install ``requirements``, which may contain options; return whether pip succeeded.

    With ``check`` a failure raises. Without it, pip's error output is discarded.
    """
    options = ["install", "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        [python, "-m", "pip", *options, *requirements],
        env={**os.environ, **(extra_env or {})},
        stderr=None if check else subprocess.DEVNULL,
        check=check,
    )
    return done.returncode == 0
