"""The time limit of a test, or of an example that Hypothesis draws: it ends the process.

An exception would not end the test: Hypothesis would catch it and make the hanging call again, and
a thread that waits in C++ handles no signal. `judge` judges tests that end their process.
"""

import faulthandler
import os
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from spec_tests.failure import show
from spec_tests.machine.clauses import CHAPTERS

#: The chapters about single functions, and files whose tests compile modules or start processes.
_WITH_EXAMPLE_LIMIT = {*CHAPTERS} - {"data_parallel", "devices"}
SLOW = ("test_compiled", "test_compiled_modules", "test_callers", "test_wrapped_twice")
#: The limits of an example in a test of single functions: seconds, and seconds of processor time.
EXAMPLE_LIMIT, PROCESSOR_LIMIT = 120, 60
#: The number of frames of the stack of a test, innermost last, and of stacks of other threads.
_FRAMES, _THREADS = 6, 3
_LIMITS = pytest.StashKey["Limits"]()


class Limits:
    """The limits of a test, and the time that has passed.

    Args:
        seconds: The limit of the test; None for the limits of each example.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        #: The arguments that Hypothesis has drawn for the example, by name.
        self.drawn: Mapping[str, object] = {}
        self._start, self._processor_start = time.monotonic(), time.process_time()

    def start_example(self, drawn: Mapping[str, object]) -> None:
        """Store that an example with the ``drawn`` arguments starts now."""
        self.drawn = drawn
        if self.seconds is None:
            self._start, self._processor_start = time.monotonic(), time.process_time()

    def reached(self) -> str:
        """Return the limit that the test has reached; empty before."""
        limit, name = self.seconds or EXAMPLE_LIMIT, "it" if self.seconds else "an example"
        if time.monotonic() - self._start > limit:
            return f"{name} has not ended in {limit:g} s"
        used = time.process_time() - self._processor_start
        if self.seconds is None and used > PROCESSOR_LIMIT:
            return f"{name} has not ended in {PROCESSOR_LIMIT} s of processor time"
        return ""


class _Timer:
    """Ends the process of a worker at the limits of a test.

    Args:
        path: The file of the worker, which says why its process has ended.
        limits: The limits of the test.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._limits, self._test_thread = limits, threading.get_ident()
        self._file, self._ended = path.open("w", encoding="utf-8"), threading.Event()
        self._others = threading.enumerate()
        # The test may keep the interpreter lock before the thread runs for the first time.
        self._arm()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """End the timer; the next one may start after it."""
        self._ended.set()
        self._thread.join()

    def _arm(self) -> None:
        """Set the time after which faulthandler ends the process.

        `_wait` sets it again each second, unless a thread keeps the interpreter lock in C.
        """
        limit = 2 * (self._limits.seconds or EXAMPLE_LIMIT)
        faulthandler.dump_traceback_later(limit, exit=True, file=self._file)

    def _wait(self) -> None:
        """End the process at the limit."""
        with self._file as file:
            while not self._ended.wait(1):
                if text := self._limits.reached():
                    with suppress(OSError):  # The disk may be full.
                        drawn = self._limits.drawn.items()
                        values = "".join(f"{name} = {show(value)}\n" for name, value in drawn)
                        file.write(f"{text}:\n{values}{self._stacks()}")
                        file.flush()
                    os._exit(1)
                self._arm()
            faulthandler.cancel_dump_traceback_later()

    def _stacks(self) -> str:
        """Return the stack of the test, and those of threads that it has started."""
        frames, known = sys._current_frames(), {*self._others, self._thread}
        started = [thread for thread in threading.enumerate() if thread not in known]
        stacks = [_stack(frames[self._test_thread], _FRAMES)]
        for thread in started[:_THREADS]:
            if frame := frames.get(thread.ident or 0):
                stacks.append(f"{thread.name}:\n{_stack(frame, 2)}")
        return "".join(stacks)


def _stack(frame: FrameType, count: int) -> str:
    """Return the innermost frames of a stack, without those of Python's own modules."""
    own = sysconfig.get_path("stdlib")
    entries = [
        entry
        for entry in traceback.extract_stack(frame)
        if not entry.filename.startswith(own) or "site-packages" in entry.filename
    ]
    return "".join(traceback.format_list(entries[-count:]))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """Start the timer of a test in a worker. Without workers pytest-timeout prints all stacks."""
    worker = getattr(item.config, "workerinput", None)
    if worker is None or settings.method != "thread":
        return None
    is_single = item.path.parent.name in _WITH_EXAMPLE_LIMIT and item.path.stem not in SLOW
    is_given = item.config.option.has_time_limit or item.get_closest_marker("timeout") is not None
    limits = Limits(settings.timeout if is_given or not is_single else None)
    item.stash[_LIMITS] = limits
    # pytest-timeout calls it at the end of the test.
    item.cancel_timeout = _Timer(_path(worker), limits).cancel
    return True


def start_example(item: pytest.Item, drawn: Mapping[str, object]) -> None:
    """Start the time of an example of a test, with the ``drawn`` arguments."""
    if _LIMITS in item.stash:
        item.stash[_LIMITS].start_example(drawn)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the file of a worker that ends by itself."""
    if hasattr(config, "workerinput"):
        _path(config.workerinput).unlink(missing_ok=True)


def pop_reason(worker: Mapping[str, Any]) -> str:
    """Return why a worker has reached a time limit; empty if it has ended for another reason."""
    path = _path(worker)
    text = path.read_text("utf-8", errors="replace") if path.exists() else ""
    path.unlink(missing_ok=True)
    if "\n\n" in text:  # The stacks of all threads by faulthandler, the test's last.
        text = "\n".join(text.split("\n\n")[-1].splitlines()[: 2 * _FRAMES + 1])
    return text.rstrip()


def _path(worker: Mapping[str, Any]) -> Path:
    name = f"parallel-conformance-{worker['testrunuid']}-{worker['workerid']}"
    return Path(tempfile.gettempdir()) / name
