"""Check the commands of console blocks against the help of their programs."""

import configparser
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

__all__ = ["check"]

ROOT = Path(__file__).resolve().parents[1]
#: For each program: the command that prints its help. ``{0}`` is the first argument.
_HELP = {
    "parallel-conformance": ("-m", "spec_tests.cli.main", "{0}", "--help"),
    "pip": ("-m", "pip", "{0}", "--help"),
    "pytest": ("-m", "pytest", "--help"),
    "pytest-benchmark": ("-m", "pytest_benchmark", "{0}", "--help"),
    "torchrun": ("-m", "torch.distributed.run", "--help"),
}
_WITHOUT_OPTIONS = {"cd", "mkdir", "export", "git"}


def check(block: str) -> None:
    """Raise AssertionError for a command with a program, option or environment that is unknown."""
    for command in _commands(block):
        words = shlex.split(command, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words:
            _check_command(words[0], words[1:])


def _commands(block: str) -> Iterator[str]:
    """Yield each command. If a line begins with ``$``, the other lines are output."""
    lines = block.replace("\\\n", " ").splitlines()
    has_prompt = any(line.startswith("$ ") for line in lines)
    for line in lines:
        if line.startswith("$ ") or not has_prompt:
            line = re.sub(r"\$\(.*?\)", "FILE", line.removeprefix("$ "))
            yield from re.split(r"\s&&\s", line)


def _check_command(program: str, arguments: Sequence[str]) -> None:
    if program in _WITHOUT_OPTIONS:
        return
    if program == "tox":
        _check_tox(arguments)
        return
    if program == "python":
        assert arguments[0] == "-m", f"unknown command: python {arguments[0]}"
        # The wheel contains the folder `bench` as `spec_bench`.
        text, arguments = _module_help(arguments[1].replace("spec_bench", "bench")), arguments[2:]
    else:
        assert program in _HELP, f"unknown program {program}"
        text = _help(program, arguments[0] if arguments else "")
    own, _, rest = _partition(arguments)
    _check_options(own, text)
    _check_options(rest, _help("pytest", "") if program == "parallel-conformance" else text)


def _partition(arguments: Sequence[str]) -> tuple[Sequence[str], str, Sequence[str]]:
    if "--" not in arguments:
        return arguments, "", ()
    index = list(arguments).index("--")
    return arguments[:index], "--", arguments[index + 1 :]


def _check_options(arguments: Sequence[str], text: str) -> None:
    for argument in arguments:
        option = argument.partition("=")[0]
        if re.match(r"--?[a-zA-Z]", option):
            known = re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text)
            assert known, f"the program has no option {option}"


def _check_tox(arguments: Sequence[str]) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    own, *_ = _partition(arguments)
    for name in own:
        assert name == "-e" or f"testenv:{name}" in parser, f"tox.ini has no environment {name}"


@cache
def _help(program: str, argument: str) -> str:
    return _output([word.format(argument) for word in _HELP[program]])


@cache
def _module_help(module: str) -> str:
    return _output(["-m", module, "--help"])


def _output(arguments: Sequence[str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"python {shlex.join(arguments)}: {done.stderr}"
    return done.stdout
