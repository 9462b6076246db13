"""Stub libraries in place of CUDA's, whose functions return constants.

``python spec_tests/cuda_stand_ins/stub_libraries.py LIB`` replaces CUDA's libraries (2 GB), so
that a CUDA build of PyTorch runs on the CPU. ``LIB`` is the folder ``torch/lib`` of a PyTorch that
was installed with ``--no-deps``. It cannot be imported yet, so the command does not run this file
as a module of its package, which imports torch. The stubs report that there is no device, so that
PyTorch calls none of their other functions.

:func:`load_stubs` makes torchvision's wheel work with a CPU build of PyTorch. PyPI has only the
CUDA build of torchvision. Its operators have CPU kernels, but its library is linked with three
CUDA libraries that a CPU build of PyTorch lacks. Without the stubs ``import torchvision`` fails,
and so do the imports of transformers, timm and fastai. No stub function is ever called.
"""

import ctypes
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

#: Matches the beginning of a CUDA library's file name.
LIBRARY = re.compile(r"lib(cu|nv|nccl)")
#: The library of NVIDIA's driver. No stub replaces it.
DRIVER = "libcuda.so.1"
#: Matches the beginning of a CUDA symbol.
SYMBOL = re.compile(r"_{0,2}(cu|nv|nccl)")
#: Matches a CUDA symbol, and a mangled name in the C++ namespaces c10::cuda and at::cuda.
TORCHVISION_SYMBOL = re.compile(rf"{SYMBOL.pattern}|_ZN.*4cuda")
#: ``cudaErrorNoDevice``, returned by the stub of ``cudaGetDeviceCount``. Other stubs return 0.
NO_DEVICE = 100


def replace_cuda(folder: Path) -> None:
    """Build a stub in ``folder`` for each CUDA library that the libraries there need and lack."""
    libraries = [path for path in folder.glob("*.so*") if not LIBRARY.match(path.name)]
    needed = {name for path in libraries for name in _needed_libraries(path)}
    cuda = [name for name in needed if LIBRARY.match(name) and name != DRIVER]
    missing = sorted(name for name in cuda if not (folder / name).exists())
    _build_stubs(folder, missing, libraries, SYMBOL)
    print(f"{folder}: {len(missing)} stub libraries")


def load_stubs() -> None:
    """Load stubs into this process, before its first import of torchvision.

    With a CUDA build of PyTorch, or without torchvision, load nothing.

    Raises:
        FileNotFoundError: There is no C compiler, ``nm`` or ``readelf``.
    """
    import torch  # A CUDA build cannot be imported before `replace_cuda`.

    spec = importlib.util.find_spec("torchvision")
    if torch.version.cuda is not None or spec is None or spec.origin is None:
        return
    extension = Path(spec.origin).with_name("_C.so")
    missing = [name for name in _needed_libraries(extension) if "cuda" in name]
    with tempfile.TemporaryDirectory() as folder:
        _build_stubs(Path(folder), missing, [extension], TORCHVISION_SYMBOL)
        for name in missing:
            ctypes.CDLL(f"{folder}/{name}", mode=ctypes.RTLD_GLOBAL)


def _build_stubs(
    folder: Path, missing: Sequence[str], libraries: Iterable[Path], symbol: re.Pattern[str]
) -> None:
    """Build the missing libraries, with the symbols that other libraries need from them."""
    symbols: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in libraries:
        libraries_by_version = _libraries_by_version(path)
        for name, version in _undefined_symbols(path):
            if missing and symbol.match(name):
                # The linker finds a symbol without a version in any library, so use the first one.
                symbols[libraries_by_version.get(version, missing[0])].add((name, version))
    for library in missing:
        _build_stub(folder / library, symbols[library])


def _read_output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _needed_libraries(path: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _read_output("readelf", "-d", path))


def _libraries_by_version(path: Path) -> dict[str, str]:
    """Return for each symbol version in ``path`` the CUDA library that provides it."""
    libraries, library = {}, ""
    for line in _read_output("readelf", "-V", "--wide", path).splitlines():
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags", line):
            libraries[match[1]] = library
    return {version: library for version, library in libraries.items() if LIBRARY.match(library)}


def _undefined_symbols(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of each symbol that the library ``path`` does not define."""
    for line in _read_output("nm", "-D", "--undefined-only", path).splitlines():
        name, _, version = line.split()[-1].partition("@")
        yield name, version


def _build_stub(library: Path, symbols: set[tuple[str, str]]) -> None:
    """Compile a library with one function per symbol. Each function returns a constant."""
    body = "".join(_define_function(name) for name, _ in sorted(symbols))
    versions: dict[str, list[str]] = defaultdict(list)
    for name, version in sorted(symbols):
        versions[version].append(name)
    script = "".join(
        f"{version} {{ global: {'; '.join(members)}; }};\n"
        for version, members in versions.items()
        if version
    )
    with tempfile.TemporaryDirectory() as scratch:
        source, map_file = Path(scratch) / "stub.c", Path(scratch) / "stub.map"
        source.write_text(body or "/* nothing */\n")
        map_file.write_text(script)
        options = [f"-Wl,--version-script={map_file}"] if script else []
        command = ["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", *options]
        subprocess.run([*command, "-o", library, source], check=True)


def _define_function(name: str) -> str:
    result = NO_DEVICE if name == "cudaGetDeviceCount" else 0
    return f"long {name}(void) {{ return {result}; }}\n"


if __name__ == "__main__":
    replace_cuda(Path(sys.argv[1]))
