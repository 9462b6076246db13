"""What a run needs of this machine, whether it is there, and the remedy if not."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["EXTRA", "main", "missing", "missing_modules"]

#: What the extra ``suite`` brings; torch is the user's own choice.
MODULES = ("torch", "pytest", "pytest_timeout", "xdist", "hypothesis", "numpy", "sklearn")
EXTRA = "remedy: pip install 'torch-parallel-spec[suite]' (and torch, 2.11 or newer)"

OLDEST = (2, 11)

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
    try:
        import torch
    except (ImportError, OSError) as error:  # installed, but without a library that it needs
        yield "torch", False, f"{error}; remedy: install it anew"
        return
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    remedy = "" if version >= OLDEST else "; remedy: pip install 'torch>=2.11'"
    yield "torch", version >= OLDEST, f"{torch.__version__}{remedy}"
    if remedy:
        return
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
    remedies = {**_tools(), "cache": _cache(library.parent)}
    for name, remedy in remedies.items():
        yield name, not remedy or not needed, f"remedy: {remedy}" if remedy else "found"
    later = "not built yet: the first run builds it, half a minute"
    yield "simulator", True, "not built: see above" if any(remedies.values()) else later


def _tools() -> dict[str, str]:
    """What the simulator is built with; the remedy where it will not do."""
    compiler = os.environ.get("CXX", "c++")
    good = _runs([*compiler.split(), "-std=c++20", "-fsyntax-only", "-x", "c++", os.devnull])
    header = Path(sysconfig.get_path("include"), "Python.h")
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        compiler: "" if good else "install g++ 11 or newer, or name a C++20 compiler in CXX",
        "Python.h": "" if header.exists() else "install Python's headers (python3-dev)",
        "ninja": "" if shutil.which("ninja", path=search) else "pip install ninja",
    }


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _cache(folder: Path) -> str:
    """The remedy if ``folder`` is not there and cannot be made, or not be written to."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError:
        return f"{there} cannot be written to: name another folder in TORCH_EXTENSIONS_DIR"
