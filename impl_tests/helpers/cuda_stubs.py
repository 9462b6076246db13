"""Stub CUDA libraries, so that torchvision's wheel works with a CPU build of PyTorch.

PyPI has only the CUDA build of torchvision. Its operators have CPU kernels, but its library is
linked with three CUDA libraries that a CPU build of PyTorch lacks. Without the stubs ``import
torchvision`` fails, and so do the imports of transformers, timm and fastai. The stub libraries
define the symbols that torchvision needs, as functions that return 0. No stub function is ever
called, because there is no CUDA device.
"""

import ctypes
import importlib.util
import subprocess
import tempfile
from pathlib import Path

import torch

#: The mangled names of symbols in the C++ namespaces c10::cuda and at::cuda contain this text.
_NAMESPACE = "4cuda"


def load_stubs() -> None:
    """Load the stub libraries into this process, before its first import of torchvision.

    With a CUDA build of PyTorch, or without torchvision, load nothing.

    Raises:
        FileNotFoundError: There is no C compiler, ``nm`` or ``readelf``.
    """
    spec = importlib.util.find_spec("torchvision")
    if torch.version.cuda is not None or spec is None or spec.origin is None:
        return
    extension = Path(spec.origin).with_name("_C.so")
    with tempfile.TemporaryDirectory() as folder:
        for library, symbols in _missing_symbols(extension).items():
            path = Path(folder) / library
            _build_stub(path, symbols)
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _missing_symbols(extension: Path) -> dict[str, set[str]]:
    """Return, for each CUDA library, the symbols that ``extension`` needs from it.

    PyTorch's symbols carry no library version, so all of them are assigned to libtorch_cuda.
    """
    symbols: dict[str, set[str]] = {name: set() for name in _cuda_dependencies(extension)}
    pytorch_library = next(name for name in symbols if name.startswith("libtorch_cuda"))
    for line in _run_tool("nm", "-D", "--undefined-only", extension).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if version in symbols:
            symbols[version].add(name)
        elif not version and name.startswith("_ZN") and _NAMESPACE in name:
            symbols[pytorch_library].add(name)
    return symbols


def _cuda_dependencies(extension: Path) -> list[str]:
    lines = _run_tool("readelf", "-d", extension).splitlines()
    libraries = [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]
    return [name for name in libraries if "cuda" in name]


def _build_stub(library: Path, symbols: set[str]) -> None:
    source, script = library.with_suffix(".c"), library.with_suffix(".map")
    body = "".join(f"long {name}(void) {{ return 0; }}\n" for name in sorted(symbols))
    source.write_text(body or "/* nothing */\n")
    script.write_text(f"{library.name} {{ global: *; }};\n" if ".so." in library.name else "")
    options = [f"-Wl,--version-script={script}"] if script.read_text() else []
    command = ["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", *options]
    subprocess.run([*command, "-o", library, source], check=True)


def _run_tool(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
