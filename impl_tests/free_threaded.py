"""Run the suite, the tests of impl and the stress test on free-threaded Python.

``tox -e free-threaded`` calls this script. The environment variable ``FREE_THREADED_PYTHON`` holds
the path of the free-threaded interpreter. The script creates a virtual environment for that
interpreter, because tox itself runs on a Python with the GIL. It does this with the functions of
``tox -e others``: if PyTorch has no CPU build for the interpreter, they install PyTorch's CUDA
build without CUDA's libraries.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from impl_tests.long_checks.__main__ import OWN_TESTS, PYTEST, SUITE, Command, run
from reports.others.catalogue import RELEASES, ROOT
from reports.others.environments import create_environment, install_torch, pip

#: The environment variable with the path of the interpreter.
VARIABLE = "FREE_THREADED_PYTHON"
#: A program that prints the version of an interpreter. It exits with status 1 if the interpreter
#: has the GIL.
PROBE = """
import sys, sysconfig
print(*sys.version_info[:2], sep=".")
sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))
"""
#: A program that exits with status 1 if one of its imports enables the GIL.
CHECK_GIL = "import sys, torch, numpy; sys.exit(sys._is_gil_enabled())"
#: For each part: its commands.
_PARTS: dict[str, Sequence[Command]] = {
    "suite": [(*SUITE, "--verdicts", "reports/local/sim-free-threaded.jsonl")],
    "impl": [(*PYTEST, *OWN_TESTS)],
    "stress": [("impl_tests.long_checks.stress", "--minutes", "10")],
}


def main() -> int:
    """Run all parts in the environment of the folder ``sys.argv[1]``; return 1 if one fails."""
    base_python = os.environ.get(VARIABLE)
    if not base_python:
        sys.exit(f"set {VARIABLE} to a free-threaded Python: python3.13t or python3.14t")
    return run(_PARTS, prepare_environment(base_python, Path(sys.argv[1]).resolve()))


def prepare_environment(base_python: str, folder: Path) -> Path:
    """Create a virtual environment with all requirements, if it is missing; return its Python.

    Raises:
        subprocess.CalledProcessError: The interpreter has the GIL, or cannot run the tests.
    """
    probe = subprocess.run([base_python, "-c", PROBE], check=True, capture_output=True, text=True)
    default = RELEASES["free-threaded"].get(probe.stdout.strip(), RELEASES["gate"][0])
    torch = os.environ.get("TORCH_VERSION") or default
    requirements = _read_requirements()

    def install(python: Path) -> None:
        install_torch(torch, python)
        # An older release with a wheel for this Python is better than a build from source.
        pip(python, "--prefer-binary", "--only-binary", "numpy", *requirements)
        subprocess.run([python, "-c", CHECK_GIL], check=True)

    return create_environment(folder, [base_python, torch, requirements], install, base_python)


def _read_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    report = [requirement for requirement in groups["report"] if isinstance(requirement, str)]
    return [*groups["test"], *report]


if __name__ == "__main__":
    sys.exit(main())
