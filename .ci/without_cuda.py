"""Let a CUDA build of PyTorch run on the CPU without CUDA's own libraries (2 GB a release).

``without_cuda.py LIB``: ``LIB`` is the folder ``torch/lib`` of a build that was installed with
``--no-deps``. Beside its libraries it gets a hollow one for each that is not there. It has the
names that PyTorch looks for and says that there is no device, so nothing else of it is called.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

#: CUDA's libraries, by the beginnings of their names, and of the names in them.
LIBRARY = re.compile(r"lib(cu|nv|nccl)")
DRIVER = "libcuda.so.1"
NAME = re.compile(r"_{0,2}(cu|nv|nccl)")
#: What ``cudaGetDeviceCount`` returns where there is none; all others return 0, success.
NO_DEVICE = 100


def main(folder: Path) -> None:
    """Make what is missing."""
    libraries = [path for path in folder.glob("*.so*") if not LIBRARY.match(path.name)]
    needed = {name for path in libraries for name in _needed(path)}
    missing = sorted(name for name in needed if not (folder / name).exists())
    names: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in libraries:
        homes = _homes(path)
        for name, version in _undefined(path):
            # A name without a version may be anywhere.
            names[homes.get(version, missing[0] if missing else "")].add((name, version))
    for library in missing:
        _build(folder / library, names[library])
    print(f"{folder}: {len(missing)} hollow libraries")


def _read(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _needed(path: Path) -> Iterator[str]:
    """The libraries of CUDA that ``path`` is linked with; not the driver's, loaded on demand."""
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", _read("readelf", "-d", path)):
        if LIBRARY.match(name) and name != DRIVER:
            yield name


def _homes(path: Path) -> dict[str, str]:
    """The library that each version of a name comes from."""
    found, library = {}, ""
    for line in _read("readelf", "-V", "--wide", path).splitlines():
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags", line):
            found[match[1]] = library
    return {version: library for version, library in found.items() if LIBRARY.match(library)}


def _undefined(path: Path) -> Iterator[tuple[str, str]]:
    for line in _read("nm", "-D", "--undefined-only", path).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if NAME.match(name):
            yield name, version


def _build(library: Path, names: set[tuple[str, str]]) -> None:
    """Compile functions that return 0, under the versions that they are asked for by."""
    body = "".join(_function(name) for name, _ in sorted(names))
    versions: dict[str, list[str]] = defaultdict(list)
    for name, version in sorted(names):
        versions[version].append(name)
    script = "".join(
        f"{version} {{ global: {'; '.join(of_it)}; }};\n"
        for version, of_it in versions.items()
        if version
    )
    with tempfile.TemporaryDirectory() as scratch:
        source, map_file = Path(scratch) / "hollow.c", Path(scratch) / "hollow.map"
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
