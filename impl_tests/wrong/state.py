"""The active perturbation of this process.

Other processes of a trial, such as ranks, read it from a file at each call. The environment
variable ``PERTURBATION_FILE`` names the file.
"""

import os
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "FILE",
    "FUNCTIONS",
    "LOG",
    "LOGGING",
    "SIGNATURES",
    "active",
    "later",
    "record",
    "set_active",
    "undo",
]

#: Environment variables: the file with the active perturbation; the wrapped functions, or ``*``;
#: those of them without their signature; and the file to which calls are recorded.
FILE, FUNCTIONS = "PERTURBATION_FILE", "PERTURBED_FUNCTIONS"
SIGNATURES, LOG = "PERTURBED_SIGNATURES", "PERTURBATION_LOG"
#: The content of the file while calls are recorded; the node id of the test follows.
LOGGING = "log "

_current: dict[int, str] = {}
_undo: list[Callable[[], object]] = []
_recorded: set[str] = set()


def set_active(text: str) -> None:
    """Set the active perturbation, in this process and those that it starts."""
    _current.clear()
    _current[os.getpid()] = text
    Path(os.environ[FILE]).write_text(text, encoding="utf-8")


def active(function: str) -> str:
    """Return the active perturbation as text; empty if it does not change ``function``."""
    text = _current.get(os.getpid())
    if text is None:
        path = os.environ.get(FILE)
        text = Path(path).read_text(encoding="utf-8") if path else ""
    return text if text.startswith((f"{function} ", LOGGING)) else ""


def record(test: str, function: str, facts: frozenset[str]) -> None:
    """Append a call to the log, once for each test, function and set of facts."""
    line = "\t".join([test, function, " ".join(sorted(facts))])
    if line not in _recorded:
        _recorded.add(line)
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{line}\n")


def later(function: Callable[[], object]) -> None:
    """Call ``function`` at the end of the trial."""
    _undo.append(function)


def undo() -> None:
    """Undo changes of this process's state by the trial that has ended."""
    while _undo:
        _undo.pop()()
