"""torch.nn.parallel of an older release: the files of its wheel, with today's PyTorch.

Nothing is installed, and nobody reads the files. They become a package, whose text is adapted by
patterns. `spec_tests.simulator.cuda_names` maps the names of CUDA to the simulated devices.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

#: The modules that the suite tests.
_MODULES = ("comm", "_functions", "scatter_gather", "replicate", "parallel_apply", "data_parallel")
#: The text of ``__init__.py``. It gives PyTorch back the names that the older modules import.
_INIT = """\
import functools
import itertools

import torch

if torch.accelerator.is_available():
    from spec_tests import simulator

    simulator.enable(torch.accelerator.device_count(), as_cuda=True)
torch._utils._accumulate = itertools.accumulate
torch.jit._enabled = torch.jit._state._enabled
# The class warns that it is deprecated, and the suite makes an error of a warning.
torch.cuda.amp.autocast = functools.partial(torch.amp.autocast, "cuda")
"""


def package_name(version: str) -> str:
    """Return the name of the package with the modules of a release: ``parallel_1_4_0``."""
    return f"parallel_{version.replace('.', '_')}"


def unpack(version: str, tags: Mapping[str, str], folder: Path) -> None:
    """Write the package of a release to ``folder``, unless it is there.

    Args:
        version: The release of PyTorch.
        tags: The tags of a wheel: ``platform`` and ``python``.
        folder: The folder of the package.
    """
    package = folder / package_name(version)
    if (package / "__init__.py").exists():
        return
    package.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        _download(version, tags, downloads)
        (wheel,) = Path(downloads).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            for module in _MODULES:
                text = _read_module(files, module, package.name)
                (package / f"{module}.py").write_text(text, encoding="utf-8")
    (package / "__init__.py").write_text(_INIT, encoding="utf-8")


def _download(version: str, tags: Mapping[str, str], folder: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", f"torch=={version}", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation=cp", "--abi=none", f"--dest={folder}"]
    command += [f"--platform={tags['platform']}", f"--python-version={tags['python']}"]
    subprocess.run(command, check=True)


def _read_module(files: zipfile.ZipFile, module: str, package: str) -> str:
    # In old releases comm is a module of torch.cuda.
    for parent in ("torch.nn.parallel", "torch.cuda"):
        name = f"{parent.replace('.', '/')}/{module}.py"
        if name in files.namelist():
            return _adapt(files.read(name).decode(), parent, package)
    raise ValueError(f"the wheel has no module {module}")


def _adapt(text: str, parent: str, package: str) -> str:
    """Return the text of a module of ``parent``, which imports the modules of ``package``."""

    def make_absolute(match: re.Match[str]) -> str:
        parents = parent.split(".")
        above = parents[: len(parents) + 1 - len(match[2])]
        return match[1] + ".".join([*above, match[3]] if match[3] else above)

    # The modules of torch.nn.parallel, but not those of torch.cuda, are those of the package.
    dots = 1 if parent == "torch.cuda" else 2
    text = re.sub(rf"(?m)^(\s*from )(\.{{{dots},}})(\w*)", make_absolute, text)
    modules = "|".join(_MODULES)
    text = re.sub(rf"torch\.(nn\.parallel|cuda)\.(?=({modules})\b)", f"{package}.", text)
    return re.sub(r"from torch\.cuda import comm\b", f"from {package} import comm", text)
