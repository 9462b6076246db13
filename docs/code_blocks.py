"""Evaluate the code blocks of the site. A test fails if a block does not do what its page says.

| language | what happens |
|---|---|
| python | The block runs. All blocks of a page share their names. |
| py | Like python, in a process group with one rank: a part of a program of the page. |
| python3 | The block is compiled only. It needs packages of ``tox -e consumers``, which runs it. |
| bash | The block runs in a temporary folder of the page, with ``parallel-conformance``. |
| console | The help of the programs has the options; not of ``pip``, ``tox`` and ``torchrun``. |
| text | Each line, except ``...``, is in the output of the block before it. |
| yaml | The commands of a workflow run like bash, for one clause and one benchmark. |
| toml, json | The block is parsed. |

A Python block whose last line is ``# raises ValueError: text`` must raise this error.
If the first line is ``# file: mylib/comm.py``, the block is written to this file of the folder.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from sybil.example import Example

__all__ = ["EVALUATORS"]

ROOT = Path(__file__).resolve().parents[1]
_EXPECTED = re.compile(r"# raises (\w+)(?:: (.*))?$")
_FILE = re.compile(r"# file: (\S+)\n")
#: The key of the output of the last block in the names of a page, and that of its folder.
_OUTPUT, _FOLDER = "__output__", "__folder__"
_COMMAND_SECONDS = 280
#: What a test replaces in the commands of a workflow, which would take many minutes.
_IN_TESTS = {
    "run yourpackage": "run yourpackage --clause comm.scatter.slices",
    "--pyargs spec_bench": "--pyargs bench.bench_parallel_apply --benchmark-max-time=0.1",
    "spec_bench": "bench",
    "yourpackage": "impl",
}
#: The environment of a program that ``torchrun`` starts as the only process.
_SINGLE_RANK = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
#: Warnings of torch.compile and torch.jit.trace. Any other warning is an error.
_IGNORED_WARNINGS = ("The .grad attribute of a Tensor", "`torch.jit.trace")


def run_python(example: Example) -> None:
    """Run a block, or write it to a file."""
    text, names = str(example.parsed), example.namespace
    # The number of simulated devices cannot change in a process.
    text = text.replace("enable(device_count=2)", "enable(device_count=4)")
    target = _FILE.match(text)
    if target:
        path = _folder(names) / target[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    names.setdefault("__name__", "page")
    code = compile("\n" * (example.line - 1) + text, example.path, "exec", dont_inherit=True)
    expected = _EXPECTED.match(text.rstrip().splitlines()[-1])
    if expected is None:
        names[_OUTPUT] = _run(code, names)
    else:
        _check_raises(code, dict(names), expected[1], expected[2])


def _run(code: Any, names: dict[str, Any]) -> str:
    """Run a block and return what it prints."""
    output, error = _outcome(code, names)
    if error is not None:
        raise AssertionError("".join(traceback.format_exception(error, limit=-3, chain=False)))
    return output


def _outcome(code: Any, names: dict[str, Any]) -> tuple[str, BaseException | None]:
    output = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(output),
            patch.dict(os.environ, _SINGLE_RANK),
            warnings.catch_warnings(),
        ):
            for text in _IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", text)
            exec(code, names)
    except BaseException as error:
        return output.getvalue(), error
    return output.getvalue(), None


def _check_raises(code: Any, names: dict[str, Any], kind: str, text: str | None) -> None:
    _, error = _outcome(code, names)
    found = f"{type(error).__name__}: {error}"
    if type(error).__name__ != kind or not _is_in(text or "", found):
        lines = found.strip().splitlines()
        raise AssertionError(f"expected {kind}: {text}, got {lines[0]} ... {lines[-1]}")


def _is_in(text: str, found: str) -> bool:
    """Return whether the parts of ``text`` between "…" occur in ``found`` in this order."""
    pattern = ".*".join(re.escape(part.strip()) for part in text.split("…"))
    return re.search(pattern, found, re.S) is not None


def run_part_of_program(example: Example) -> None:
    """Run a block that needs a process group after the program of its page."""
    example.namespace.setdefault("F", torch.nn.functional)
    with patch.dict(os.environ, _SINGLE_RANK):
        dist.init_process_group("gloo")
        try:
            run_python(example)
        finally:
            dist.destroy_process_group()


def run_shell(example: Example) -> None:
    """Run a block with bash in the folder of the page."""
    _run_shell(str(example.parsed), example.namespace)


def _run_shell(text: str, names: dict[str, Any]) -> None:
    folder = _folder(names)
    environment = {
        **os.environ,
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_STEP_SUMMARY": "summary.md",
        "PATH": f"{_programs(folder)}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["bash", "-eu", "-c", text],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    names[_OUTPUT] = done.stdout
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"


def _folder(names: dict[str, Any]) -> Path:
    """Return the temporary folder of a page. It is removed with the names of the page."""
    if _FOLDER not in names:
        names[_FOLDER] = tempfile.TemporaryDirectory(prefix="docs-")
    return Path(names[_FOLDER].name)


def _programs(folder: Path) -> Path:
    """Return a folder with the program that the wheel installs."""
    program = folder / ".programs" / "parallel-conformance"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m spec_tests.cli "$@"\n')
    program.chmod(0o755)
    return program.parent


def check_commands(example: Example) -> None:
    """Look the options of a block up in the help of their programs."""
    for command in re.split(r"\n|&&", str(example.parsed).replace("\\\n", " ")):
        match command.partition("#")[0].removeprefix("$ ").split():
            case ["parallel-conformance", name, *arguments]:
                end = arguments.index("--") if "--" in arguments else len(arguments)
                _check_options(arguments[:end], _help("spec_tests.cli", name))
                _check_options(arguments[end + 1 :], _help("pytest"))
            case ["pytest", *arguments]:
                _check_options(arguments, _help("pytest"))
            case ["python", "-m", module, *arguments]:
                # The wheel contains the folder `bench` as `spec_bench`.
                _check_options(arguments, _help(module.replace("spec_bench", "bench")))


def _check_options(arguments: Sequence[str], text: str) -> None:
    for argument in arguments:
        option = argument.partition("=")[0]
        if re.match(r"--?[a-zA-Z]", option):
            is_known = re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text)
            assert is_known, f"the program has no option {option}"


@cache
def _help(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"python -m {' '.join(command)} --help: {done.stderr}"
    return done.stdout


def check_output(example: Example) -> None:
    """Compare a block with the output of the block before it, unless there is none.

    The output in an included file is compared by the tests of this file.
    """
    output = example.namespace.pop(_OUTPUT, "")
    if not output or str(example.parsed) not in Path(example.path).read_text(encoding="utf-8"):
        return
    position = 0
    for line in str(example.parsed).splitlines():
        if line.strip() == "...":
            continue
        found = output.find(line.strip(), position)
        assert found >= 0, f"{line!r} is not in this place of the output:\n{output}"
        position = found + len(line.strip())


def run_workflow(example: Example) -> None:
    """Run the commands of a workflow on impl, for one clause and one file of benchmarks."""
    import yaml  # installed with myst-parser

    jobs = yaml.safe_load(str(example.parsed))["jobs"].values()
    commands = [step.get("run", "") for job in jobs for step in job["steps"]]
    for command in commands:
        if not command.startswith(("pip ", "git ")):
            for text, replacement in _IN_TESTS.items():
                command = command.replace(text, replacement)
            _run_shell(command, example.namespace)


def _parser(parse: Callable[[str], object]) -> Callable[[Example], None]:
    def check(example: Example) -> None:
        parse(str(example.parsed))

    return check


def _reported(evaluate: Callable[[Example], None]) -> Callable[[Example], str | None]:
    """Return a function that returns the text of a failure, as Sybil expects."""

    def run(example: Example) -> str | None:
        try:
            evaluate(example)
        except Exception as error:
            return str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        return None

    return run


#: For each language of a code block: the function that runs or checks a block.
_FUNCTIONS: Mapping[str, Callable[[Example], None]] = {
    "python": run_python,
    "py": run_part_of_program,
    "python3": _parser(lambda text: compile(text, "block", "exec", dont_inherit=True)),
    "bash": run_shell,
    "console": check_commands,
    "text": check_output,
    "toml": _parser(tomllib.loads),
    "json": _parser(json.loads),
    "yaml": run_workflow,
}
EVALUATORS = {language: _reported(function) for language, function in _FUNCTIONS.items()}
