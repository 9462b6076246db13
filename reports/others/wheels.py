"""torch.nn.parallel of an older release: the files of its wheel, with today's PyTorch.

Nothing is installed, and nobody reads the files. They become a package, whose text is adapted by
patterns. `spec_tests.simulator.cuda_names` maps the names of CUDA to the simulated devices.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

#: The modules that the suite tests.
MODULES = ("comm", "_functions", "scatter_gather", "replicate", "parallel_apply", "data_parallel")
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


class Wheel(NamedTuple):
    """The wheel of a release of PyTorch, with its tags."""

    release: str
    platform: str
    python: str

    @property
    def package(self) -> str:
        """The name of the package with the modules of the release: ``parallel_1_4_0``."""
        return f"parallel_{self.release.replace('.', '_')}"

    def unpack(self, folder: Path) -> None:
        """Write the package to ``folder``, unless it is there."""
        if (folder / self.package / "__init__.py").exists():
            return
        command = [sys.executable, "-m", "pip", "download", "-q", f"torch=={self.release}"]
        command += ["--no-deps", "--only-binary=:all:", "--implementation=cp", "--abi=none"]
        command += [f"--platform={self.platform}", f"--python-version={self.python}"]
        with tempfile.TemporaryDirectory() as downloads:
            subprocess.run([*command, f"--dest={downloads}"], check=True)
            self.write_package(next(Path(downloads).glob("*.whl")), folder)

    def write_package(self, file: Path, folder: Path) -> None:
        """Write the package to ``folder``, from the file of the wheel."""
        package = folder / self.package
        package.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(file) as files:
            for module in MODULES:
                (package / f"{module}.py").write_bytes(_read(files, module, self.package).encode())
        (package / "__init__.py").write_text(_INIT, encoding="utf-8")


def _read(files: zipfile.ZipFile, module: str, package: str) -> str:
    """Return the text of a module, which imports the modules of ``package``."""
    file = f"torch/nn/parallel/{module}.py"
    if file not in files.namelist():  # In old releases comm is a module of torch.cuda.
        file = f"torch/cuda/{module}.py"
    parent = file.rpartition("/")[0].replace("/", ".")
    text = files.read(file).decode()
    text = re.sub(r"(?m)^(\s*from )(\.+\w*)", lambda m: m[1] + resolve_name(m[2], parent), text)
    modules = "|".join(MODULES)
    text = re.sub(rf"torch\.(nn\.parallel|cuda)\.(?=({modules})\b)", f"{package}.", text)
    imported = r"from torch\.(nn\.parallel(?= import\b)|cuda(?= import comm\b))"
    return re.sub(imported, f"from {package}", text)
