"""Run the suite and tests of impl on the devices of a back end.

``tox -e back-end -- NAME MODULE`` calls this program.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import torch

_ROOT = Path(__file__).resolve().parents[1]
_USAGE = """\
usage: tox -e back-end -- NAME MODULE [options of parallel-conformance run]

NAME is the device type of the back end, and MODULE is the module that registers the type.
"""
_HELP = """\
The module {module} cannot be imported ({error}).

Install the back end into {prefix}, built for PyTorch {torch}, or set PYTHONPATH to the
folder that has the module.
"""


def main(arguments: list[str]) -> int:
    """Return the exit status of the suite and the tests; 2 if the module cannot be imported."""
    if len(arguments) < 2 or any(each.startswith("-") for each in arguments[:2]):
        print(_USAGE, end="")
        return 2
    name, module, *options = arguments
    try:
        importlib.import_module(module)
    except ImportError as error:
        text = {"module": module, "error": error, "prefix": sys.prefix}
        print(_HELP.format(**text, torch=torch.__version__), end="")
        return 2
    status = subprocess.call([*_suite(name, module), *options], cwd=_ROOT)
    files = os.environ.get("TESTS_OF_FEATURES", "").split()
    if files and "--clause" not in options:
        # A call that ends its process ends a worker of pytest-xdist.
        pytest = [sys.executable, "-m", "pytest", "-n1", "-p", module, f"--accelerator={name}"]
        pytest += options[options.index("--") + 1 :] if "--" in options else []
        status = max(status, subprocess.call([*pytest, *files], cwd=_ROOT))
    return status


def _suite(name: str, module: str) -> list[str]:
    """Return the command of the suite, with the register of the back end, if there is one."""
    register = Path("spec_tests", "registers", "back_ends", f"{name}.toml")
    known = [f"--divergences={register}"] if (_ROOT / register).exists() else []
    run = [sys.executable, "-m", "spec_tests.cli", "run", "impl", f"--accelerator={name}"]
    return [*run, "-p", module, *known, "--verdicts", f"reports/local/{name}.jsonl"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
