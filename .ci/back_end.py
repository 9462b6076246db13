"""Run the suite on impl, on the devices of a back end: ``tox -e back-end -- NAME MODULE``."""

import importlib
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
    """Return the exit status of the suite; 2 if the module of the back end cannot be imported."""
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
    return subprocess.call([*_command(name, module), *options], cwd=_ROOT)


def _command(name: str, module: str) -> list[str]:
    """Return the command of the suite, with the register of the back end, if there is one."""
    register = Path("spec_tests", "registers", "back_ends", f"{name}.toml")
    known = [f"--divergences={register}"] if (_ROOT / register).exists() else []
    run = [sys.executable, "-m", "spec_tests.cli", "run", "impl", f"--accelerator={name}"]
    return [*run, "-p", module, *known, "--verdicts", f"reports/local/{name}.jsonl"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
