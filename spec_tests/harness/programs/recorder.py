"""A pytest plugin that records the operators that each test calls on an accelerator.

The file that `FILE` names gets a line when a call starts, and a line when it ends.
"""

import dataclasses
import itertools
import json
import os
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spec_tests.harness.programs.expressions import NoExpressionError
from spec_tests.harness.programs.operator_call import OperatorCall

#: The environment variable with the name of the file.
FILE = "TORCH_PARALLEL_SPEC_OPERATORS"
_numbers = itertools.count()
_run_thread = threading.Thread.run


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # unannotated in PyTorch
    """Records the operators that one thread calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            current = torch.accelerator.current_device_index()
            call = OperatorCall.of(function, args, kwargs, current)
        except (NoExpressionError, RuntimeError):
            call = None
        if call is None:
            return function(*args, **kwargs)
        number = f"{os.getpid()}-{next(_numbers)}"
        _write({"started": number, "call": dataclasses.asdict(call)})
        try:
            result = function(*args, **kwargs)
            # A kernel that runs later may raise the error, or end the process.
            for device in call.devices:
                torch.accelerator.synchronize(device)
        except Exception as error:
            _write({"ended": number, "error": f"{type(error).__name__}: {error}"})
            raise
        _write({"ended": number})
        return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record the operators of a test, also those of the threads that it starts."""
    threading.Thread.run = _run_recorded  # type: ignore[assignment,method-assign]
    try:
        _write({"test": item.nodeid})
        with Recorder():
            return (yield)
    finally:
        threading.Thread.run = _run_thread  # type: ignore[method-assign]


def _run_recorded(thread: threading.Thread) -> None:
    with Recorder():
        _run_thread(thread)


def _write(line: dict[str, Any]) -> None:
    # The line must be in the file if the next call ends the process.
    with open(os.environ[FILE], "a", encoding="utf-8") as file:
        file.write(json.dumps({**line, "process": os.getpid()}) + "\n")


@dataclass(frozen=True)
class RecordedCall:
    """A call of an operator.

    Args:
        test: The node id of the test.
        call: The call.
        error: Class and text of the error; empty if there is none.
        ended: Whether the call returned or raised an error.
    """

    test: str
    call: OperatorCall
    error: str
    ended: bool


def read(path: Path) -> list[RecordedCall]:
    """Return the records of a file of `recorder`, in the order of the calls."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    # A process that ends may leave a part of a line.
    complete = [line for line in text.split("\n")[:-1] if line.endswith("}")]
    return list(_parse([json.loads(line) for line in complete]))


def _parse(lines: list[dict[str, Any]]) -> Iterator[RecordedCall]:
    errors = {line["ended"]: line.get("error", "") for line in lines if "ended" in line}
    tests: dict[int, str] = {}
    for line in lines:
        if "test" in line:
            tests[line["process"]] = line["test"]
        elif "started" in line:
            number = line["started"]
            test = tests.get(line["process"], "")
            lists = {key: tuple(line["call"][key]) for key in ("tensors", "devices")}
            call = OperatorCall(**{**line["call"], **lists})
            yield RecordedCall(test, call, errors.get(number, ""), number in errors)
