"""The error of a life, with the rules of the life as a program."""

import dataclasses
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from spec_tests.failure import CheckError, note, of_exception
from spec_tests.machine.devices import Topology, make_topology
from spec_tests.machine.programs import Expressions
from spec_tests.machine.target import Target


class LifeError(CheckError):
    """The error of a life. Its note is a program, which can be pasted into a file.

    Args:
        error: The error of the last rule.
        machine: The class of the machine.
        target: Its first argument.
        topology: Its second argument.
        known: Its third argument.
        steps: The names and arguments of the rules so far.

    Attributes:
        statements: Returns the statements of the program, for the collector of their imports.
    """

    def __init__(
        self,
        error: Exception,
        machine: type[Any],
        target: Target,
        topology: Topology,
        known: Collection[str],
        steps: Sequence[tuple[str, Mapping[str, Any]]],
    ) -> None:
        self.statements: Callable[[Expressions], list[str]] = partial(
            _statements, machine, sorted(known), tuple(steps)
        )
        expressions = Expressions()
        lines = self.statements(expressions)
        found = of_exception(error)
        is_error = not isinstance(error, AssertionError)
        text = f"{found.text}\n{traceback_end(error)}" if is_error else str(error)
        call = "\n".join(lines)
        found = dataclasses.replace(found, text=text, call=call)
        super().__init__(text, found)
        note(found)  # Hypothesis loses the error if a repetition of the calls differs.
        of_target, devices = map(expressions.of_named, (Target, make_topology))
        ordinals = ",".join(map(str, topology.ordinals))
        definitions = (
            f"target = {of_target}({target.name!r}, {target.mapping})",
            f"topology = {devices}({topology.accelerator!r}, {ordinals!r})",
        )
        self.add_note("\n".join(["", expressions.imports, *definitions, *lines]))


def traceback_end(error: Exception) -> str:
    """Return the last two frames of the traceback of an error, its class and its text."""
    return "".join(traceback.format_exception(error, limit=-2, chain=False)).rstrip()


def _statements(
    machine: type[Any],
    known: Sequence[str],
    steps: Sequence[tuple[str, Mapping[str, Any]]],
    expressions: Expressions,
) -> list[str]:
    """Return statements that call the rules ``steps`` of a machine."""
    lines = [f"life = {expressions.of_named(machine)}(target, topology, set({known}))"]
    for name, arguments in steps:
        given = (f"{key}={expressions.of(value)}" for key, value in arguments.items())
        lines.append(f"life.{name}({', '.join(given)})")
    return lines
