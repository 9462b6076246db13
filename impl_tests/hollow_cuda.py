"""torchvision's wheel beside a CPU build of PyTorch.

The package index has torchvision's CUDA build only. Its operators have CPU kernels, but the
library that holds them is linked with three of CUDA's, which a CPU build of PyTorch lacks; without
it ``import torchvision`` fails, and with that the import of transformers, timm and fastai. Hollow
libraries in their places have the names that it looks for. All functions return 0 and none is
called: there is no CUDA device to call them for.
"""

import ctypes
import importlib.util
import subprocess
import tempfile
from pathlib import Path

import torch

#: How C++ spells names of c10::cuda and at::cuda.
_OF_CUDA = ("4cuda", "3c104cuda", "2at4cuda")


def load() -> None:
    """Load the hollow libraries into this process, before its first import of torchvision.

    Nothing is done where PyTorch is a CUDA build or there is no torchvision.

    Raises:
        CalledProcessError: There is no C compiler, or no ``nm``.
    """
    found = importlib.util.find_spec("torchvision")
    if torch.version.cuda is not None or found is None or found.origin is None:
        return
    extension = Path(found.origin).with_name("_C.so")
    with tempfile.TemporaryDirectory() as folder:
        for library, names in _libraries(extension).items():
            path = Path(folder) / library
            _build(path, names)
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _libraries(extension: Path) -> dict[str, set[str]]:
    """CUDA's libraries that ``extension`` is linked with, and the names it needs of each.

    Names of PyTorch carry no version, so which of its two libraries has them cannot be told.
    """
    found: dict[str, set[str]] = {name: set() for name in _needed(extension)}
    of_pytorch = next(name for name in found if name.startswith("libtorch_cuda"))
    for line in _read("nm", "-D", "--undefined-only", extension).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if version in found:
            found[version].add(name)
        elif not version and name.startswith("_ZN") and any(part in name for part in _OF_CUDA):
            found[of_pytorch].add(name)
    return found


def _needed(extension: Path) -> list[str]:
    lines = _read("readelf", "-d", extension).splitlines()
    libraries = [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]
    return [name for name in libraries if "cuda" in name]


def _build(library: Path, names: set[str]) -> None:
    source, script = library.with_suffix(".c"), library.with_suffix(".map")
    body = "".join(f"long {name}(void) {{ return 0; }}\n" for name in sorted(names))
    source.write_text(body or "/* nothing */\n")
    script.write_text(f"{library.name} {{ global: *; }};\n" if ".so." in library.name else "")
    options = [f"-Wl,--version-script={script}"] if script.read_text() else []
    command = ["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", *options]
    subprocess.run([*command, "-o", library, source], check=True)


def _read(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
