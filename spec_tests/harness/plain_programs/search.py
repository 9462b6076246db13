"""Find a program in plain PyTorch for each cause of failures."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spec_tests.harness.conformance import causes
from spec_tests.harness.environment import probes
from spec_tests.harness.plain_programs import recorder
from spec_tests.harness.plain_programs.recorder import RecordedCall

__all__ = ["Question", "find"]

#: Seconds after which the tests that run again, and then a program, are killed.
TESTS_LIMIT, PROGRAM_LIMIT = 300, 60
#: The greatest number of causes for which programs are looked for.
MAX_CAUSES = 10
#: The greatest number of operators that are compared with the CPU for one cause.
MAX_COMPARED = 200
#: The greatest number of programs that are tried for one cause.
MAX_TRIED = 2


@dataclass(frozen=True)
class Question:
    """A cause of failures.

    Args:
        text: The text of the first failure, see `causes.find_cause`.
        clause: The clause of this failure.
        test: The name of the test's function.
    """

    text: str
    clause: str
    test: str


def find(
    questions: Sequence[Question],
    format_command: Callable[[Sequence[str]], Sequence[str]],
    modules: Sequence[str],
) -> dict[str, str]:
    """Return a program for each cause, by its text, for which one can be found.

    Args:
        questions: The causes.
        format_command: Returns the command that runs the tests of clauses, given their ids. The
            arguments at its end are for pytest.
        modules: The modules that register the back end.
    """
    asked = questions[:MAX_CAUSES]
    clauses = [*dict.fromkeys(each.clause for each in asked)]
    # One run of the first failing test of each cause records the operators.
    tests = " or ".join(dict.fromkeys(each.test for each in asked))
    command = [*format_command(clauses), "-p", recorder.__name__, "-k", tests]
    with tempfile.TemporaryDirectory() as folder:
        file, findings = Path(folder, "operators.jsonl"), Path(folder, "probes")
        probes.save(findings)  # The run need not try the back end again.
        _run(command, TESTS_LIMIT, {recorder.FILE: str(file), probes.FILE: str(findings)})
        found = recorder.read(file)
    programs = {each.text: _find_one(each, found, tuple(modules)) for each in asked}
    return {text: program for text, program in programs.items() if program is not None}


def _find_one(
    question: Question, found: Sequence[RecordedCall], modules: tuple[str, ...]
) -> str | None:
    own = [each for each in found if f"::{question.test}" in each.test and not each.call.refused]
    if causes.is_error(question.text):
        return _find_error(question.text, own, modules)
    # The test may have got the result of an error of an operator.
    errors = dict.fromkeys(causes.find_cause(each.error) for each in own if each.error)
    programs = (_find_error(text, own, modules) for text in [*errors][:MAX_TRIED])
    return next(filter(None, programs), None) or _find_wrong_value(own, modules)


def _find_error(text: str, found: Sequence[RecordedCall], modules: tuple[str, ...]) -> str | None:
    """Return a program that raises the error of a cause on the devices only."""
    strict = text.partition(":")[0].endswith("Warning")
    calls = [each.call for each in found if _has_cause(each, text)]
    programs = {each.raising_program(modules, strict=strict): each for each in calls}
    # The shortest programs are the smallest calls.
    for program in sorted(programs, key=len)[:MAX_TRIED]:
        on_cpu = programs[program].on_cpu().raising_program((), strict=strict)
        # An error that the CPU raises, too, is a fault of the arguments.
        if _shows(program, text) and not _shows(on_cpu, text):
            return program
    return None


def _has_cause(record: RecordedCall, text: str) -> bool:
    if text.startswith(causes.ENDED):
        return not record.ended
    if record.error and _key(record.error) == causes.key_of(text):
        return True
    # A warning in C++ is raised after the call.
    named = re.search(r"aten::(\w+)", text)
    return named is not None and record.call.operator.startswith(f"aten.{named[1]}.")


def _key(error: str) -> str:
    return causes.key_of(causes.find_cause(error))


def _shows(program: str, text: str) -> bool:
    """Return whether a program raises the error of a cause, ends its process, or never returns."""
    status, output = _run([sys.executable, "-c", program], PROGRAM_LIMIT)
    if text.startswith(causes.ENDED):
        return status is None or status < 0
    lines = output.splitlines()
    # A traceback has the name of the error's module, too. C++ prints warnings itself.
    errors = [re.sub(r"^(?:\w+\.)+(?=\w+: )", "", line) for line in lines]
    errors += [re.sub(r"^\[W.*?\] Warning: ", "UserWarning: ", line) for line in lines]
    return any(_key(each) == causes.key_of(text) for each in errors)


def _find_wrong_value(found: Sequence[RecordedCall], modules: tuple[str, ...]) -> str | None:
    """Return a program with the first operator whose result differs from that on the CPU."""
    calls = dict.fromkeys(each.call for each in found if each.call.comparable and not each.error)
    programs = [each.comparing_program(modules) for each in calls][:MAX_COMPARED]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "programs.json")
        file.write_text(json.dumps(programs), encoding="utf-8")
        command = [sys.executable, "-m", "spec_tests.harness.plain_programs.comparison", str(file)]
        _, output = _run(command, TESTS_LIMIT)
    number = next((int(line) for line in output.splitlines() if line.isdigit()), None)
    if number is None:
        return None
    status, output = _run([sys.executable, "-c", programs[number]], PROGRAM_LIMIT)
    return programs[number] if status == 1 and "AssertionError" in output else None


def _run(
    command: Sequence[str], limit: int, environment: dict[str, str] | None = None
) -> tuple[int | None, str]:
    """Run a command; return status and output. The status is None after ``limit`` seconds."""
    # The module of a back end may be in the current folder.
    places = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **places, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _kill_group(process)
        output.seek(0)
        return status, output.read()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all processes that it has started and that still run."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
