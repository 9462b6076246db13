"""The command ``doctor --accelerator NAME``: the functions that a back end offers and lacks."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec_tests.harness.environment.back_end import Check
    from spec_tests.harness.environment.probes import Finding

__all__ = ["main"]

#: Length in characters to which the text of an error is cut.
_MAX_TEXT = 120


def main(accelerator: str, modules: Sequence[str]) -> int:
    """Print a line for each function of the back end; return 1 if a required one is missing.

    Args:
        accelerator: The device type, such as ``sim``.
        modules: Modules to import first, because they register the back end.
    """
    from spec_tests.harness.environment import back_end, capabilities, probes
    from spec_tests.harness.environment.back_end import dtype_name
    from spec_tests.harness.environment.topology import MODULES, make_topology
    from spec_tests.harness.input_files import shorten
    from spec_tests.strategies.computed_modules import find_errors

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
    print(f"{topology.distinct} devices: {', '.join(map(str, topology.devices))}")
    print("trying its functions in another process ...", flush=True)
    names = [check.name for check in back_end.CHECKS]
    findings = probes.find_all(back_end.run_check, names, topology)
    failed = 0
    for check, finding in zip(back_end.CHECKS, findings, strict=True):
        failed += check.is_required and finding.state != "there"
        print(f"{check.name:<24}{_format(check, finding)}")
    print(f"{'dtypes':<24}{', '.join(map(dtype_name, capabilities.find(topology).dtypes))}")
    for text, name in capabilities.find(topology).errors.items():
        if name not in names:
            print(f"{f'dtype {name}':<24}fails    {text[:_MAX_TEXT]}")
    for kind, text in find_errors(topology).items():
        print(f"{f'layer {kind}':<24}fails    {text[:_MAX_TEXT]}")
        print(f"{'':<24}optional; the suite does not use the layer")
    return int(bool(failed))


def _format(check: "Check", finding: "Finding") -> str:
    if finding.state == "there":
        return "there"
    need = "needed by" if check.is_required else "optional; used by"
    text = finding.text[:_MAX_TEXT]
    return f"{finding.state:<9}{check.function}: {text}\n{'':<24}{need} {check.users}"
