"""Run everything on a Python without lock: the suite, the tests of impl, the stress test.

``tox -e free-threaded``, with the interpreter's path in ``FREE_THREADED_PYTHON``. It gets an
environment of its own, since tox's has a lock; where PyTorch has no build for the CPU alone, the
one with CUDA runs without CUDA's libraries.
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
#: The newest release of PyTorch by minor version of Python; others take that of the other runs.
TORCH = {13: "2.12.0"}
OTHERWISE = "2.13.0"
REMEDY = (
    "One is made from Python's sources by `./configure --disable-gil && make && make install`, "
    "in some ten minutes, with the headers of OpenSSL, zlib, bz2, lzma, libffi and SQLite"
)
#: Asked of the interpreter: its version, whether it can do without lock, what it lacks.
QUESTION = """
import importlib.util, json, sys, sysconfig
wanted = ("_bz2", "_ctypes", "_lzma", "_sqlite3", "_ssl", "zlib", "venv")
print(json.dumps({
    "version": sys.version_info[:3],
    "free": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "lacks": [name for name in wanted if importlib.util.find_spec(name) is None],
}))
"""
LOCK = "import sys, torch, numpy, sklearn; sys.exit(sys._is_gil_enabled())"

_PYTEST = ("pytest", "-n", "3", "--dist", "worksteal")
_SUITE = ("spec_tests", "--ignore", "spec_tests/meta_tests", "--accelerator", "sim")
#: What is run, by name.
PARTS = {
    "suite": (*_PYTEST, *_SUITE, "--verdicts", "reports/local/sim-free-threaded.jsonl"),
    "impl": (*_PYTEST, "spec_tests/meta_tests", "impl_tests"),
    "stress": ("impl_tests.stress", "--minutes", "10", "--threads", "2-16"),
}


def main() -> int:
    """Run the parts that are named, or all; 1 if one fails, 2 if there is no such Python."""
    parser = argparse.ArgumentParser(prog="tox -e free-threaded --", description=main.__doc__)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--python", default=os.environ.get(NAME), help=f"default: ${NAME}")
    parser.add_argument("--home", type=Path, required=True, help="a folder for the environment")
    options = parser.parse_args()
    unknown = set(options.part) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {min(unknown)}; there are {', '.join(PARTS)}")
    refused = refusal(options.python)
    if refused:
        parser.error(refused)
    python = _environment(options.python, options.home.resolve())
    failed = [part for part in options.part or PARTS if _run(python, PARTS[part])]
    print(f"failed: {', '.join(failed)}" if failed else "all parts passed, lock off")
    return int(bool(failed))


def refusal(python: str | None) -> str:
    """Why ``python`` cannot be taken, and what to do; empty if it can."""
    if not python:
        return f"name a Python without lock in {NAME}, a python3.13t or python3.14t. {REMEDY}"
    try:
        about = _about(python)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        return f"{NAME}: {python} does not run: {error}. {REMEDY}"
    version = ".".join(map(str, about["version"]))
    if not about["free"]:
        return f"{NAME}: {python} is Python {version} with its lock. {REMEDY}"
    if about["lacks"]:
        lacks = ", ".join(about["lacks"])
        return f"{NAME}: {python} was built without {lacks}: install the headers. {REMEDY}"
    return ""


def _about(python: str) -> dict[str, Any]:
    done = subprocess.run([python, "-c", QUESTION], check=True, stdout=subprocess.PIPE, text=True)
    about: dict[str, Any] = json.loads(done.stdout)
    return about


def _environment(base: str, home: Path) -> Path:
    """Give the interpreter of an environment that has all that the tests need."""
    python = home / "bin" / "python"
    minor = _about(base)["version"][1]
    torch = os.environ.get("TORCH_VERSION") or TORCH.get(minor, OTHERWISE)
    stamp, needs = home / "made.json", json.dumps([base, torch, _needs()])
    if not stamp.exists() or stamp.read_text() != needs:
        print(f"making {home}: torch {torch}", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", home], check=True)
        install_torch(torch, python)
        # A release without a wheel for this Python is older, not built here.
        pip(python, "--prefer-binary", "--only-binary", "numpy,scikit-learn,scipy", *_needs())
        subprocess.run([python, "-c", LOCK], check=True)
        stamp.write_text(needs)
    return python


def _needs() -> Sequence[str]:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    report = [need for need in groups["dependency-groups"]["report"] if isinstance(need, str)]
    return [*groups["dependency-groups"]["test"], *report]


def _run(python: Path, command: Sequence[str]) -> int:
    print("$ python -m", *command, flush=True)
    return subprocess.run([python, "-m", *command], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
