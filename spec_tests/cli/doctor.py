"""What a run needs of this machine, whether it is there, and the remedy if not."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["EXTRA", "main", "missing", "missing_modules"]

#: What the extra ``suite`` brings; torch is the user's own choice.
MODULES = ("torch", "pytest", "pytest_timeout", "xdist", "hypothesis", "numpy", "sklearn")
EXTRA = "remedy: pip install 'torch-parallel-spec[suite]' (and torch, 2.11 or newer)"

#: What was looked at, whether it will do, what was found or the remedy.
Finding = tuple[str, bool, str]


def missing_modules() -> list[str]:
    """What cannot be imported of `MODULES`."""
    return missing(MODULES)


def missing(names: Iterable[str]) -> list[str]:
    """What cannot be imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def main() -> int:
    """Print a line for everything; return 1 if something is missing, else 0."""
    findings = list(_findings())
    for name, good, text in findings:
        print(f"{'ok' if good else 'MISSING':<8}{name:<11} {text}")
    return int(not all(good for _, good, _ in findings))


def _findings() -> Iterator[Finding]:
    yield "python", sys.version_info >= (3, 11), sys.version.split()[0]
    lacking = missing_modules()
    yield "modules", not lacking, f"{', '.join(lacking)}; {EXTRA}" if lacking else "all there"
    if "torch" not in lacking:
        yield from _of_torch()


def _of_torch() -> Iterator[Finding]:
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    remedy = "" if version >= (2, 11) else "; remedy: pip install 'torch>=2.11'"
    yield "torch", version >= (2, 11), f"{torch.__version__}{remedy}"
    found = torch.accelerator.current_accelerator(check_available=True)
    text = (
        f"{torch.accelerator.device_count()} of {found.type}" if found else "none; sim stands in"
    )
    yield "devices", True, text
    yield from _of_simulator(needed=found is None or found.type == "sim")


def _of_simulator(*, needed: bool) -> Iterator[Finding]:
    from spec_tests.simulator import build

    library = build.SIMULATOR.library
    if library.exists():
        yield "simulator", True, f"built: {library}"
        return
    compiler = os.environ.get("CXX", "c++").split()[0]
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    remedies = {compiler: "install g++ 11 or newer, or name a C++20 compiler in CXX"}
    remedies["ninja"] = "pip install ninja"
    lacking = [tool for tool in remedies if shutil.which(tool, path=search) is None]
    for tool in remedies:
        good = tool not in lacking
        yield tool, good or not needed, "found" if good else f"remedy: {remedies[tool]}"
    text = "not built yet: the first run builds it, half a minute"
    yield "simulator", True, text if not lacking else "not built: see above"
