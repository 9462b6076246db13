"""The command ``doctor --accelerator NAME``: clauses about devices that a back end violates."""

import functools
import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec_tests.machine.clauses import Clause
    from spec_tests.machine.devices import Topology
    from spec_tests.machine.probes import Finding

#: Length in characters to which the text of an error is cut.
_MAX_TEXT = 120
#: The width in characters of the first column: the ids of the clauses.
_WIDTH = 42


def main(
    accelerator: str,
    modules: Sequence[str],
    *,
    without: Sequence[str] = (),
    fault: str | None = None,
) -> int:
    """Print a line for each clause about devices; return 1 if a required one is violated.

    Args:
        accelerator: The device type, such as ``sim``.
        modules: Modules to import first, because they register the back end.
        without: Features of the simulator that are switched off first.
        fault: A fault of the simulator that is active meanwhile.
    """
    from spec_tests import simulator
    from spec_tests.machine.devices import MODULES, make_topology
    from spec_tests.machine.input_files import shorten

    try:
        if without:
            simulator.switch_off(without)
        if fault is not None:
            simulator.check_fault(fault)
    except ValueError as error:
        print(error)
        return 1

    try:
        if "" in modules:
            raise ValueError("the name of a module is empty")
        os.environ[MODULES] = ",".join(modules)  # Another process imports them, too.
        topology = make_topology(accelerator, None)
    except Exception as error:  # the code of a back end may raise any error
        print(shorten(f"{type(error).__name__}: {error}"))
        if not modules:
            print("import the back end with -p MODULE, if PyTorch does not load it")
        return 1
    print(f"{topology.distinct} devices: {', '.join(map(str, topology.devices))}", flush=True)
    with nullcontext() if fault is None else simulator.fault(fault):
        return _print_clauses(topology)


def _print_clauses(topology: "Topology") -> int:
    from spec_tests.devices import chapter
    from spec_tests.machine import capabilities, probes
    from spec_tests.machine.capabilities import dtype_name
    from spec_tests.strategies.supported_layers import find_errors

    probes.say = functools.partial(print, flush=True)
    offered = capabilities.find(topology)
    failed = 0
    for finding in offered.findings:
        clause = chapter.known_clauses().get(finding.name)
        if clause is not None:
            failed += not clause.feature and finding.state in ("missing", "wrong")
            print(f"{clause.id:<{_WIDTH}}{_format(clause, finding)}")
        elif finding.text:
            print(f"{f'dtype {finding.name}':<{_WIDTH}}fails    {finding.text[:_MAX_TEXT]}")
    print(f"{'dtypes':<{_WIDTH}}{', '.join(map(dtype_name, offered.dtypes)) or 'none'}")
    for kind, text in find_errors(topology).items():
        print(f"{f'layer {kind}':<{_WIDTH}}fails    {text[:_MAX_TEXT]}")
        print(f"{'':<{_WIDTH}}optional; the suite does not use the layer")
    return int(bool(failed))


def _format(clause: "Clause", finding: "Finding") -> str:
    """Return the state and, if the clause is violated, the error, the clause and its users."""
    if not finding.text:
        return finding.state
    need = f"optional, feature {clause.feature}; used" if clause.feature else "needed"
    text = finding.text.removeprefix("not-run: ")
    lines = [f"{finding.state:<9}{text[:_MAX_TEXT]}", clause.says]
    lines += [f"{need} by {clause.users}"]
    return f"\n{'':<{_WIDTH}}".join(lines)
