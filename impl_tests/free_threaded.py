"""Run the suite, the tests of impl and the stress test on free-threaded Python.

``tox -e free-threaded`` calls this. The variable ``FREE_THREADED_PYTHON`` holds the path of the
interpreter. The script creates a virtual environment for it, because tox's interpreter has the
interpreter lock. If PyTorch has no CPU build for this interpreter, its CUDA build is installed
without CUDA's libraries.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.others.environments import install_torch, pip

ROOT = Path(__file__).resolve().parents[1]
NAME = "FREE_THREADED_PYTHON"
#: The newest release of PyTorch for a minor version of Python.
TORCH = {13: "2.12.0"}
#: The release for other versions of Python.
DEFAULT_TORCH = "2.13.0"
REMEDY = (
    "Build one from Python's sources with `./configure --disable-gil && make && make install`; "
    "it takes ten minutes and needs the headers of OpenSSL, zlib, bz2, lzma, libffi and SQLite"
)
#: Run by the interpreter: prints its version, whether it is free-threaded, and missing modules.
PROBE = """
import importlib.util, json, sys, sysconfig
required = ("_bz2", "_ctypes", "_lzma", "_sqlite3", "_ssl", "zlib", "venv")
print(json.dumps({
    "version": sys.version_info[:3],
    "is_free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "missing": [name for name in required if importlib.util.find_spec(name) is None],
}))
"""
#: Fails if one of these imports switches the interpreter lock on.
CHECK_LOCK = "import sys, torch, numpy, sklearn; sys.exit(sys._is_gil_enabled())"

_PYTEST = ("pytest", "-n", "3", "--dist", "worksteal")
_SUITE = ("spec_tests", "--ignore", "spec_tests/meta_tests", "--accelerator", "sim")
#: The commands by name.
PARTS = {
    "suite": (*_PYTEST, *_SUITE, "--verdicts", "reports/local/sim-free-threaded.jsonl"),
    "impl": (*_PYTEST, "spec_tests/meta_tests", "impl_tests"),
    "stress": ("impl_tests.stress", "--minutes", "10", "--threads", "2-16"),
}


def main() -> int:
    """Run the named parts, by default all; return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="tox -e free-threaded --", description=main.__doc__)
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--python", default=os.environ.get(NAME), help=f"default: ${NAME}")
    parser.add_argument(
        "--home", type=Path, required=True, help="folder of the virtual environment"
    )
    options = parser.parse_args()
    unknown = set(options.part) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {min(unknown)}; the parts are {', '.join(PARTS)}")
    problem = find_problem(options.python)
    if problem:
        parser.error(problem)
    python = _environment(options.python, options.home.resolve())
    failed = [part for part in options.part or PARTS if _run(python, PARTS[part])]
    print(
        f"failed: {', '.join(failed)}"
        if failed
        else "all parts passed without the interpreter lock"
    )
    return int(bool(failed))


def find_problem(python: str | None) -> str:
    """Return why ``python`` cannot be used, with a remedy; an empty text if it can."""
    if not python:
        return f"set {NAME} to a free-threaded Python, python3.13t or python3.14t. {REMEDY}"
    try:
        about = _probe(python)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        return f"{NAME}: {python} does not run: {error}. {REMEDY}"
    version = ".".join(map(str, about["version"]))
    if not about["is_free_threaded"]:
        return f"{NAME}: {python} is Python {version}, which is not free-threaded. {REMEDY}"
    if about["missing"]:
        missing = ", ".join(about["missing"])
        return f"{NAME}: {python} was built without {missing}: install the headers. {REMEDY}"
    return ""


def _probe(python: str) -> dict[str, Any]:
    done = subprocess.run([python, "-c", PROBE], check=True, stdout=subprocess.PIPE, text=True)
    about: dict[str, Any] = json.loads(done.stdout)
    return about


def _environment(base: str, folder: Path) -> Path:
    """Create a virtual environment with all requirements; return its interpreter."""
    python = folder / "bin" / "python"
    minor = _probe(base)["version"][1]
    torch = os.environ.get("TORCH_VERSION") or TORCH.get(minor, DEFAULT_TORCH)
    stamp, contents = folder / "made.json", json.dumps([base, torch, _requirements()])
    if not stamp.exists() or stamp.read_text() != contents:
        print(f"creating {folder}: torch {torch}", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
        install_torch(torch, python)
        # Prefer an older release with a wheel for this Python to a build from source.
        pip(
            python,
            "--prefer-binary",
            "--only-binary",
            "numpy,scikit-learn,scipy",
            *_requirements(),
        )
        subprocess.run([python, "-c", CHECK_LOCK], check=True)
        stamp.write_text(contents)
    return python


def _requirements() -> Sequence[str]:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    report = [it for it in groups["dependency-groups"]["report"] if isinstance(it, str)]
    return [*groups["dependency-groups"]["test"], *report]


def _run(python: Path, command: Sequence[str]) -> int:
    print("$ python -m", *command, flush=True)
    return subprocess.run([python, "-m", *command], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
