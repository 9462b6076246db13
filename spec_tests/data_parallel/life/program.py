"""The rules of a life as a program, which can be pasted into a file."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology, make_topology
from spec_tests.harness.expressions import Expressions


def as_program(
    machine: type[Any],
    target: Target,
    topology: Topology,
    known: Collection[str],
    steps: Sequence[tuple[str, Mapping[str, Any]]],
) -> str:
    """Return a program that calls the rules ``steps`` of a machine.

    Args:
        machine: The class of the machine.
        target: Its first argument.
        topology: Its second argument.
        known: Its third argument.
        steps: The names and arguments of the rules.
    """
    expressions = Expressions()
    life, of_target, devices = map(expressions.of_named, (machine, Target, make_topology))
    ordinals = ",".join(map(str, topology.ordinals))
    new_topology = f"{devices}({topology.accelerator!r}, {ordinals!r})"
    lines = [f"life = {life}({of_target}({target.name!r}), {new_topology}, {set(known)})"]
    for name, arguments in steps:
        given = (f"{key}={expressions.of(value)}" for key, value in arguments.items())
        lines.append(f"life.{name}({', '.join(given)})")
    return "\n".join([expressions.imports, *lines])
