"""The command ``doctor``: requirements of a run on this machine, and remedies."""

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence

#: The modules that pip installs with ``[suite]``, and torch, which users install themselves.
MODULES = ("torch", "pytest", "pytest_timeout", "xdist", "hypothesis", "numpy", "msgspec")
EXTRA = "remedy: pip install 'torch-parallel-spec[suite]' (and torch, 2.11 or newer)"

#: The oldest supported release of PyTorch.
OLDEST = (2, 11)

#: The name of a requirement, whether it is met, and a text: the version found, or the remedy.
Requirement = tuple[str, bool, str]


def missing_modules() -> list[str]:
    """Return the modules of `MODULES` that are not installed."""
    return missing(MODULES)


def missing(names: Iterable[str]) -> list[str]:
    """Return the modules among ``names`` that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def main(
    accelerator: str | None = None,
    modules: Sequence[str] = (),
    *,
    without: Sequence[str] = (),
    fault: str | None = None,
) -> int:
    """Print a line for each requirement; return 1 if one is not met, else 0.

    Args:
        accelerator: The type of a back end whose functions are tried, too.
        modules: Modules to import first, because they register the back end.
        without: Features of the simulator that are switched off first.
        fault: A fault of the simulator that stays active.
    """
    if (without or fault) and accelerator != "sim":
        print("--without and --fault change the simulator: add --accelerator sim")
        return 1
    # A back end is loaded later, so whether there is an accelerator is not known yet.
    failed = False
    for name, is_met, text in _requirements():
        if accelerator is None or name != "devices":
            print(f"{'ok' if is_met else 'MISSING':<8}{name:<11} {text}", flush=True)
            failed = failed or not is_met
    if failed or accelerator is None:
        return int(failed)
    from spec_tests.cli import device_clauses

    return device_clauses.main(accelerator, modules, without=without, fault=fault)


def _requirements() -> Iterator[Requirement]:
    """Yield each requirement of a run."""
    yield "python", sys.version_info >= (3, 11), sys.version.split()[0]
    lacks = missing_modules()
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
