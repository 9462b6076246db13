"""Create stubs of CUDA's libraries (2 GB), so that a CUDA build of PyTorch runs on the CPU.

Usage: ``without_cuda.py LIB``, with the folder ``torch/lib`` of a build that was installed with
``--no-deps``. Each missing library gets a stub in this folder, with the symbols that PyTorch links
to. The stubs report that there is no device, so that PyTorch calls none of their other functions.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

#: Patterns for the file names of CUDA's libraries and for the symbols in them.
LIBRARY = re.compile(r"lib(cu|nv|nccl)")
DRIVER = "libcuda.so.1"
SYMBOL = re.compile(r"_{0,2}(cu|nv|nccl)")
#: The result of ``cudaGetDeviceCount`` without a device. All other stubs return 0, success.
NO_DEVICE = 100


def main(folder: Path) -> None:
    """Build a stub for each missing library."""
    libraries = [path for path in folder.glob("*.so*") if not LIBRARY.match(path.name)]
    needed = {name for path in libraries for name in _needed(path)}
    missing = sorted(name for name in needed if not (folder / name).exists())
    symbols: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in libraries:
        libraries_by_version = _libraries_by_version(path)
        for name, version in _undefined(path):
            # A symbol without a version may be in any library.
            library = libraries_by_version.get(version, missing[0] if missing else "")
            symbols[library].add((name, version))
    for library in missing:
        _build(folder / library, symbols[library])
    print(f"{folder}: {len(missing)} stub libraries")


def _read(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _needed(path: Path) -> Iterator[str]:
    """Yield the CUDA libraries that ``path`` is linked to, without the driver."""
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", _read("readelf", "-d", path)):
        if LIBRARY.match(name) and name != DRIVER:
            yield name


def _libraries_by_version(path: Path) -> dict[str, str]:
    """Return the library of each symbol version."""
    libraries, library = {}, ""
    for line in _read("readelf", "-V", "--wide", path).splitlines():
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags", line):
            libraries[match[1]] = library
    return {version: library for version, library in libraries.items() if LIBRARY.match(library)}


def _undefined(path: Path) -> Iterator[tuple[str, str]]:
    for line in _read("nm", "-D", "--undefined-only", path).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if SYMBOL.match(name):
            yield name, version


def _build(library: Path, symbols: set[tuple[str, str]]) -> None:
    """Compile a library with the given symbols and versions; each function returns a constant."""
    body = "".join(_function(name) for name, _ in sorted(symbols))
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


def _function(name: str) -> str:
    result = NO_DEVICE if name == "cudaGetDeviceCount" else 0
    return f"long {name}(void) {{ return {result}; }}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
