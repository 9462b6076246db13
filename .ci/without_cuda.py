"""Replace CUDA's libraries (2 GB) by stubs, so that a CUDA build of PyTorch runs on the CPU.

Usage: ``without_cuda.py LIB``. ``LIB`` is the folder ``torch/lib`` of a PyTorch that was installed
with ``--no-deps``. For each missing library the program builds a stub library in this folder, with
the symbols that PyTorch links to. The stubs report that there is no device, so that PyTorch calls
none of their other functions.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

#: Matches the beginning of a CUDA library's file name.
LIBRARY = re.compile(r"lib(cu|nv|nccl)")
#: The library of NVIDIA's driver. No stub replaces it.
DRIVER = "libcuda.so.1"
#: Matches the beginning of a CUDA symbol.
SYMBOL = re.compile(r"_{0,2}(cu|nv|nccl)")
#: ``cudaErrorNoDevice``, returned by the stub of ``cudaGetDeviceCount``. Other stubs return 0.
NO_DEVICE = 100


def main(folder: Path) -> None:
    """Build a stub for each missing library."""
    libraries = [path for path in folder.glob("*.so*") if not LIBRARY.match(path.name)]
    needed = {name for path in libraries for name in _cuda_dependencies(path)}
    missing = sorted(name for name in needed if not (folder / name).exists())
    symbols: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in libraries:
        libraries_by_version = _libraries_by_version(path)
        for name, version in _undefined_symbols(path):
            # The linker finds a symbol without a version in any library, so use the first one.
            library = libraries_by_version.get(version, missing[0] if missing else "")
            symbols[library].add((name, version))
    for library in missing:
        _build_stub(folder / library, symbols[library])
    print(f"{folder}: {len(missing)} stub libraries")


def _read_output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _cuda_dependencies(path: Path) -> Iterator[str]:
    """Yield the CUDA libraries, except the driver's, that the library ``path`` is linked to."""
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", _read_output("readelf", "-d", path)):
        if LIBRARY.match(name) and name != DRIVER:
            yield name


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
    """Yield name and version of each CUDA symbol that the library ``path`` does not define."""
    for line in _read_output("nm", "-D", "--undefined-only", path).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if SYMBOL.match(name):
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
    main(Path(sys.argv[1]))
