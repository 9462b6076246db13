"""The command ``doctor``: requirements of a run on this machine, and remedies.

With ``--accelerator NAME`` it also tries the clauses about devices. The imports of other modules
stand in functions: the command also runs if packages are not installed.
"""

import argparse
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec_tests.machine.clauses import Clause
    from spec_tests.machine.devices import Topology
    from spec_tests.machine.probes import Finding

#: The packages that a run imports. pip installs all but torch with the extra ``suite``.
PACKAGES = ("torch", "pytest", "pytest_timeout", "xdist", "hypothesis", "numpy", "msgspec")
EXTRA = (
    "remedy: pip install --find-links FOLDER 'torch-parallel-spec[suite]', where FOLDER has the "
    "wheel, and torch 2.11 or newer"
)

#: The oldest supported release of PyTorch.
OLDEST = (2, 11)
#: Length in characters to which the text of an error is cut.
_MAX_TEXT = 120
#: The width in characters of the first column: the ids of the clauses.
_WIDTH = 42

#: The name of a requirement, whether it is met, and a text: the version found, or the remedy.
Requirement = tuple[str, bool, str]


def missing_packages() -> list[str]:
    """Return the packages of `PACKAGES` that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def main(options: argparse.Namespace) -> int:
    """Print a line for each requirement; return 1 if one is not met, else 0.

    With ``--accelerator`` also print a line for each clause about devices; return 1 if a required
    one is violated.
    """
    if options.without or options.fault:
        options.accelerator = options.accelerator or "sim"
        if options.accelerator != "sim":
            print(f"--without and --fault change the simulator, not {options.accelerator}")
            return 1
    # A back end is loaded later, so whether there is an accelerator is not known yet.
    failed = False
    for name, is_met, text in _requirements():
        if options.accelerator is None or name != "devices":
            print(f"{'ok' if is_met else 'MISSING':<8}{name:<11} {text}", flush=True)
            failed = failed or not is_met
    failed = failed or not _import_modules(options.modules)
    if failed or options.accelerator is None:
        return int(failed)
    return _try_devices(options)


def _import_modules(names: list[str]) -> bool:
    """Import the modules of the option ``-p``; print the error of one and return False."""
    from spec_tests.machine.input_files import in_one_line

    sys.path.insert(0, str(Path.cwd()))  # Like `run`.
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # the code of a back end may raise any error
            print(in_one_line(f"-p {name}: {type(error).__name__}: {error}"))
            return False
    return True


def _try_devices(options: argparse.Namespace) -> int:
    from spec_tests import simulator
    from spec_tests.machine.devices import BACK_ENDS, make_topology
    from spec_tests.machine.input_files import in_one_line

    accelerator, modules, fault = options.accelerator, options.modules, options.fault
    try:
        if options.without:
            simulator.switch_off(options.without)
        if fault is not None:
            simulator.check_fault(fault)
    except ValueError as error:
        print(error)
        return 1
    try:
        os.environ[BACK_ENDS] = ",".join(modules)  # Another process imports them, too.
        topology = make_topology(accelerator, None)
    except Exception as error:  # the code of a back end may raise any error
        print(in_one_line(f"{type(error).__name__}: {error}"))
        if not modules:
            print("import the back end with -p MODULE, if PyTorch does not load it")
        return 1
    print(f"{topology.distinct} devices: {', '.join(map(str, topology.devices))}", flush=True)
    with nullcontext() if fault is None else simulator.fault(fault):
        return _print_clauses(topology)


def _requirements() -> Iterator[Requirement]:
    """Yield each requirement of a run."""
    yield "python", sys.version_info >= (3, 11), sys.version.split()[0]
    lacks = missing_packages()
    yield "modules", not lacks, f"{', '.join(lacks)}; {EXTRA}" if lacks else "all installed"
    if "torch" not in lacks:
        yield from _torch_requirements()


def _torch_requirements() -> Iterator[Requirement]:
    print("importing PyTorch ...", flush=True)
    try:
        import torch
    except (ImportError, OSError) as error:  # torch is installed, but lacks a library
        yield "torch", False, f"{error}; remedy: reinstall torch"
        return
    except RuntimeError as error:  # a back end with an entry point cannot be loaded
        yield "torch", False, f"{error} {error.__cause__}"
        return
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    remedy = "" if version >= OLDEST else "; remedy: pip install 'torch>=2.11'"
    yield "torch", version >= OLDEST, f"{torch.__version__}{remedy}"
    if remedy:
        return
    found = torch.accelerator.current_accelerator(check_available=True)
    text = (
        f"{torch.accelerator.device_count()} of {found.type}"
        if found
        else "no accelerator; runs use the simulator"
    )
    yield "devices", True, text
    yield from _simulator_requirements(is_needed=found is None or found.type == "sim")


def _simulator_requirements(*, is_needed: bool) -> Iterator[Requirement]:
    from spec_tests.simulator import build

    is_built = build.library().exists()
    if not is_built and not is_needed:
        yield "simulator", True, "not built: a run with --accelerator sim builds it"
        return
    if not is_built:
        print("building the simulator, once on this machine (30 s) ...", flush=True)
    try:
        build.build()
    except RuntimeError as error:
        yield "simulator", False, str(error)
    else:
        yield "simulator", True, f"built: {build.library()}"


def _print_clauses(topology: "Topology") -> int:
    import pytest

    from spec_tests.machine import capabilities, clauses, probes
    from spec_tests.machine.capabilities import dtype_name
    from spec_tests.strategies.supported_layers import find_errors

    probes.say = functools.partial(print, flush=True)
    try:
        offered = capabilities.find(topology)
    except pytest.UsageError as error:
        number = clauses.format_count(len(capabilities.device_clauses()))
        print(f"{error}; {number} about devices not tried; exit status 1")
        return 1
    required = optional = 0
    for finding in offered.findings:
        clause = capabilities.device_clauses().get(finding.name)
        if clause is not None:
            is_violated = finding.state in ("missing", "wrong")
            required += is_violated and not clause.feature
            optional += is_violated and bool(clause.feature)
            print(f"{clause.id:<{_WIDTH}}{_describe(clause, finding)}")
        elif finding.text:
            print(f"{f'dtype {finding.name}':<{_WIDTH}}fails    {finding.text[:_MAX_TEXT]}")
    print(f"{'dtypes':<{_WIDTH}}{', '.join(map(dtype_name, offered.dtypes)) or 'none'}")
    for kind, text in find_errors(topology).items():
        print(f"{f'layer {kind}':<{_WIDTH}}fails    {text[:_MAX_TEXT]}")
        print(f"{'':<{_WIDTH}}optional; the suite does not use the layer")
    status = int(bool(required))
    counts = clauses.format_count(required, "required clause")
    print(f"violated: {counts}, {optional} optional; exit status {status}")
    return status


def _describe(clause: "Clause", finding: "Finding") -> str:
    """Return the state and, if the clause is violated, the error, the clause and its users."""
    if not finding.text:
        return finding.state
    need = f"optional, feature {clause.feature}; used" if clause.feature else "needed"
    error = finding.text[:_MAX_TEXT]
    lines = f"{finding.state:<9}{error}", clause.says, f"{need} by {clause.users}"
    return f"\n{'':<{_WIDTH}}".join(lines)
