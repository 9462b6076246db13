"""The implementations that a run validates: impl, the releases of PyTorch, and ``others.toml``."""

import json
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reports.others.wheels import Wheel

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REFERENCE = "torch.nn.parallel"
_SUPPORTED = json.loads((ROOT / ".ci/releases.json").read_text(encoding="utf-8"))
#: The supported releases of PyTorch. The first release of ``gate`` is the default. If a version of
#: Python without the GIL needs another one, ``free-threaded`` has it.
RELEASES = _SUPPORTED["torch"]


@dataclass(frozen=True)
class Implementation:
    """An implementation to validate.

    Args:
        name: The name on the command line.
        target: The Python module that the suite tests.
        reported: The name of the target in reports.
        torch: The release of PyTorch to install.
        python: The command of another Python, such as ``python3.12``.
        install: The arguments of each call of pip, after PyTorch and the suite's requirements.
        settings: Environment variables for these calls.
        options: Options of the run.
        pytest: Options of pytest for the run.
        facts: The file of tests that runs in place of the suite; empty for the suite.
        wheel: The wheel with the modules of an older release of PyTorch, if they are the target.
    """

    name: str
    target: str
    reported: str
    torch: str = RELEASES["gate"][0]
    python: str = ""
    install: Sequence[Sequence[str]] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    pytest: Sequence[str] = ()
    facts: str = ""
    wheel: Wheel | None = None


def load() -> dict[str, Implementation]:
    """Return the implementations by name: those of releases and Pythons, then the others."""
    tables = tomllib.loads((HERE / "others.toml").read_text(encoding="utf-8"))
    wheels = tables.pop("wheels")
    of_wheels = tables.pop("older")
    found = []
    for torch in RELEASES["gate"] + RELEASES["older"]:
        table = tables.pop(f"torch-{torch}", {})
        found += [
            Implementation(f"impl-torch-{torch}", "impl", "impl", torch),
            Implementation(f"torch-{torch}", REFERENCE, REFERENCE, torch, **table),
        ]
    for version in _SUPPORTED["python"]["gate"][1:] + _SUPPORTED["python"]["others"]:
        # pyenv has a shim for each version, which fails unless the version is active.
        if subprocess.getstatusoutput(f"python{version} --version")[0] == 0:
            python = f"python{version}"
            found.append(Implementation(f"impl-{python}", "impl", "impl", python=python))
    for tags, release in ((tags, each) for tags, group in wheels.items() for each in group):
        name, wheel = f"torch-{release}", Wheel(release, *tags.split("-"))
        reported = f"{REFERENCE} {release}"
        found.append(Implementation(name, wheel.package, reported, wheel=wheel, **of_wheels))
    found += [Implementation(name, **{"reported": name, **tables[name]}) for name in tables]
    return {each.name: each for each in found}
