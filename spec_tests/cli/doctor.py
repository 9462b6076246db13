"""The command ``doctor``: requirements of a run on this machine, and remedies."""

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

#: The modules that pip installs with ``[suite]``, and torch, which users install themselves.
MODULES = ("torch", "pytest", "pytest_timeout", "xdist", "hypothesis", "numpy")
EXTRA = "remedy: pip install 'torch-parallel-spec[suite]' (and torch, 2.11 or newer)"

#: The oldest supported release of PyTorch.
OLDEST = (2, 11)

#: The name of a requirement, whether it is met, and a text: the version found, or the remedy.
Finding = tuple[str, bool, str]


def missing_modules() -> list[str]:
    """Return the modules of `MODULES` that are not installed."""
    return missing(MODULES)


def missing(names: Iterable[str]) -> list[str]:
    """Return the modules among ``names`` that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def main(accelerator: str | None = None, modules: Sequence[str] = ()) -> int:
    """Print a line for each requirement; return 1 if one is not met, else 0.

    Args:
        accelerator: The type of a back end whose functions are tried, too.
        modules: Modules to import first, because they register the back end.
    """
    # A back end is loaded later, so whether there is an accelerator is not known yet.
    failed = False
    for name, is_met, text in _findings():
        if accelerator is None or name != "devices":
            print(f"{'ok' if is_met else 'MISSING':<8}{name:<11} {text}", flush=True)
            failed = failed or not is_met
    if failed or accelerator is None:
        return int(failed)
    from spec_tests.cli import device_clauses

    return device_clauses.main(accelerator, modules)


def _findings() -> Iterator[Finding]:
    """Yield a finding for each requirement of a run."""
    yield "python", sys.version_info >= (3, 11), sys.version.split()[0]
    lacks = missing_modules()
    yield "modules", not lacks, f"{', '.join(lacks)}; {EXTRA}" if lacks else "all installed"
    if "torch" not in lacks:
        yield from _torch_findings()


def _torch_findings() -> Iterator[Finding]:
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
    yield from _simulator_findings(is_needed=found is None or found.type == "sim")


def _simulator_findings(*, is_needed: bool) -> Iterator[Finding]:
    from spec_tests.simulator import build

    library = build.SIMULATOR.library
    if os.path.exists(library):  # Path.exists raises an error for a long name
        yield "simulator", True, f"built: {library}"
        return
    remedies = {**_tool_remedies(), "cache": _cache_remedy(library.parent)}
    for name, remedy in remedies.items():
        yield name, not remedy or not is_needed, f"remedy: {remedy}" if remedy else "found"
    later = "not built yet: the first run builds it in about 30 seconds"
    yield "simulator", True, "cannot be built: see above" if any(remedies.values()) else later


def _tool_remedies() -> dict[str, str]:
    """Return, for each tool that builds the simulator, the remedy; empty if the tool works."""
    compiler = os.environ.get("CXX", "c++")
    works = _succeeds([*compiler.split(), "-std=c++20", "-fsyntax-only", "-x", "c++", os.devnull])
    header = Path(sysconfig.get_path("include"), "Python.h")
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        compiler: "" if works else "install g++ 11 or newer, or set CXX to a C++20 compiler",
        "Python.h": "" if header.exists() else "install Python's headers (python3-dev)",
        "ninja": "" if shutil.which("ninja", path=search) else "pip install ninja",
    }


def _succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _cache_remedy(folder: Path) -> str:
    """Return the remedy if no file can be written in ``folder``, else an empty text."""
    existing = next(each for each in (folder, *folder.parents) if os.path.exists(each))
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError:
        return f"{existing} is not writable: set TORCH_EXTENSIONS_DIR to another folder"
