"""Find a program in plain PyTorch for each cause of failures."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from spec_tests.harness.conformance import causes
from spec_tests.harness.environment import probes
from spec_tests.harness.environment.scripts import run_process
from spec_tests.harness.programs import recorder
from spec_tests.harness.programs.recorder import RecordedCall

#: Seconds after which the tests that run again, and then a program, are killed.
TESTS_LIMIT, PROGRAM_LIMIT = 300, 60
#: The greatest number of causes for which programs are looked for.
MAX_CAUSES = 10
#: The greatest number of operators that are compared with the CPU for one cause.
MAX_COMPARED = 200
#: The greatest number of programs that are tried for one cause.
MAX_TRIED = 2
#: Prints the number of the first of several programs that raises an AssertionError.
_FIND_FAILING = """
import json, sys
for number, program in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))):
    try:
        exec(program, {})
    except AssertionError:
        sys.exit(str(number))
    except Exception:  # no fault: the CPU may refuse these values, too
        pass
"""


@dataclass(frozen=True)
class FirstFailure:
    """The first failure that has a cause.

    Args:
        cause: The text of the cause, see `causes.find_cause`.
        clause: The clause that the test checks.
        test: The name of the test's function.
    """

    cause: str
    clause: str
    test: str


def find(
    failures: Sequence[FirstFailure],
    format_command: Callable[[Sequence[str]], Sequence[str]],
    modules: Sequence[str],
) -> dict[str, str]:
    """Return a program for each cause, by its text, for which one can be found.

    Args:
        failures: The first failure of each cause.
        format_command: Returns the command that runs the tests of clauses, given their ids. The
            arguments at its end are for pytest.
        modules: The modules that register the back end.
    """
    asked = failures[:MAX_CAUSES]
    clauses = [*dict.fromkeys(each.clause for each in asked)]
    # One run of the first failing test of each cause records the operators.
    tests = " or ".join(dict.fromkeys(each.test for each in asked))
    command = [*format_command(clauses), "-p", recorder.__name__, "-k", tests]
    with tempfile.TemporaryDirectory() as folder:
        file, findings = Path(folder, "operators.jsonl"), Path(folder, "probes")
        probes.save(findings)  # The run need not try the back end again.
        _run(command, TESTS_LIMIT, {recorder.FILE: str(file), probes.FILE: str(findings)})
        found = recorder.read(file)
    programs = {each.cause: _find_one(each, found, tuple(modules)) for each in asked}
    return {cause: program for cause, program in programs.items() if program is not None}


def _find_one(
    failure: FirstFailure, found: Sequence[RecordedCall], modules: tuple[str, ...]
) -> str | None:
    own = [each for each in found if f"::{failure.test}" in each.test and not each.call.refused]
    if causes.is_error(failure.cause):
        return _find_error(failure.cause, own, modules)
    # The test may have got the result of an error of an operator.
    errors = dict.fromkeys(causes.find_cause(each.error) for each in own if each.error)
    programs = (_find_error(text, own, modules) for text in [*errors][:MAX_TRIED])
    return next(filter(None, programs), None) or _find_wrong_value(own, modules)


def _find_error(text: str, found: Sequence[RecordedCall], modules: tuple[str, ...]) -> str | None:
    """Return a program that raises the error of a cause on the devices only."""
    strict = text.partition(":")[0].endswith("Warning")
    calls = [each.call for each in found if _has_cause(each, text)]
    programs = {each.raising_program(modules, strict=strict, on_cpu=False): each for each in calls}
    # The shortest programs are the smallest calls.
    for program in sorted(programs, key=len)[:MAX_TRIED]:
        on_cpu = programs[program].raising_program((), strict=strict, on_cpu=True)
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
        _, output = _run([sys.executable, "-c", _FIND_FAILING, str(file)], TESTS_LIMIT)
    number = next((int(line) for line in output.splitlines() if line.isdigit()), None)
    if number is None:
        return None
    status, output = _run([sys.executable, "-c", programs[number]], PROGRAM_LIMIT)
    return programs[number] if status == 1 and "AssertionError" in output else None


def _run(
    command: Sequence[str], seconds: int, environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[int | None, str]:
    """Run a command; return status and output. The status is None after some seconds."""
    try:
        done = run_process(command, environment, seconds=seconds)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr
