"""Builds and caches C++ extensions.

``torch.utils.cpp_extension`` compiles them into its usual cache. The name of the folder contains
a digest of the sources and of the versions of PyTorch and Python.
"""

import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

__all__ = ["SIMULATOR", "Extension", "build", "load"]

# Build in a subprocess, because cpp_extension is slow to import, prints, and loads the library.
_PROGRAM = """
import json, sys
from torch.utils import cpp_extension
cpp_extension.load(**json.loads(sys.argv[1]))
"""


@dataclass(frozen=True)
class Extension:
    """A C++ extension: the simulator, or the C++ front end of spec_tests/cpp_front_end.

    Args:
        name: The first part of the library's file name.
        description: The subject of error messages.
        folder: The folder of the ``*.cpp`` files to compile.
        flags: Compiler options.
        headers: Folders below ``folder`` in which the compiler searches headers.
    """

    name: str
    description: str
    folder: Path
    flags: tuple[str, ...] = ("-O1", "-std=c++20")
    headers: tuple[str, ...] = ()

    @property
    def cache_key(self) -> str:
        """A digest of the sources, the flags, and the versions of PyTorch and Python.

        Checkouts with equal sources share one library, because no path is a part of the digest.
        """
        digest = hashlib.sha256()
        for part in (torch.__version__, sysconfig.get_config_var("SOABI"), *self.flags):
            digest.update(f"{part}\n".encode())
        for source in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            digest.update(source.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def library(self) -> Path:
        """The path of the compiled library in the cache."""
        name = f"{self.name}_{self.cache_key}"
        return _cache_folder() / name / f"{name}.so"


SIMULATOR = Extension("sim", "the simulated accelerator", Path(__file__).parent / "csrc")


def load(extension: Extension = SIMULATOR) -> ModuleType:
    """Import ``extension`` and return the module; build the extension first if needed.

    Raises:
        RuntimeError: The compiler or ninja is missing, the compilation fails, or the cache
            folder cannot be written to.
    """
    build(extension)
    return _import_library(extension.library.stem, extension.library)


def build(extension: Extension = SIMULATOR) -> None:
    """Build ``extension`` unless its library is in the cache. Raise the errors of `load`."""
    library = extension.library
    if not library.exists():
        _create_folder(library.parent, extension)
        with _lock_file(library.parent / "lock") as lock:
            if not library.exists():
                built = _build(extension, library.stem, library.parent / "build", lock)
                os.replace(built, library)


def _create_folder(folder: Path, extension: Extension) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
    except OSError as error:
        remedy = "set TORCH_EXTENSIONS_DIR to a writable folder"
        raise RuntimeError(
            f"{extension.description} is cached in {folder}: {error}; {remedy}"
        ) from None


def _cache_folder() -> Path:
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    if chosen:
        return Path(chosen)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "torch_extensions"


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    """Lock a file while the block runs, and yield its descriptor.

    Child processes that inherit the descriptor keep the file locked after this process ends.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _build(extension: Extension, name: str, folder: Path, lock_descriptor: int) -> Path:
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    compiler = os.environ.get("CXX", "c++")
    _require_tool(
        extension, compiler, search_path, "install g++ 11 or newer, or set CXX to a C++20 compiler"
    )
    _require_tool(extension, "ninja", search_path, "install it with `pip install ninja`")
    folder.mkdir(exist_ok=True)
    (folder / "lock").unlink(missing_ok=True)  # exists if an earlier build was killed
    arguments = {
        "name": name,
        "sources": _write_unity_sources(sorted(extension.folder.glob("*.cpp")), folder),
        "extra_cflags": list(extension.flags),
        "extra_include_paths": [str(extension.folder / name) for name in extension.headers],
        "build_directory": str(folder),
    }
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(arguments)],
        env={**os.environ, "PATH": search_path},
        # The compiler inherits the lock, and keeps it even if this process is killed.
        pass_fds=[lock_descriptor],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(
            f"{extension.description} could not be built with {compiler} (it needs C++20, "
            f"g++ 11 or newer):\n{_first_errors(result.stderr)}"
        )
    return folder / f"{name}.so"


def _write_unity_sources(sources: list[Path], folder: Path) -> list[str]:
    """Write one file per CPU core that includes several sources. Return the paths of the files.

    Compiling PyTorch's headers takes most of the time, so fewer files build faster.
    """
    count = min(len(sources), os.cpu_count() or 1)
    groups: list[list[Path]] = [[] for _ in range(count)]
    for source in sorted(sources, key=lambda path: path.stat().st_size, reverse=True):
        min(groups, key=lambda group: sum(path.stat().st_size for path in group)).append(source)
    files = [folder / f"part{number}.cpp" for number in range(count)]
    for file, group in zip(files, groups, strict=True):
        file.write_text("".join(f'#include "{path}"\n' for path in group), encoding="utf-8")
    return [str(file) for file in files]


def _first_errors(compiler_output: str) -> str:
    """Return the first five compiler errors, or the last five lines if there are none."""
    lines = compiler_output.splitlines()
    return "\n".join([line for line in lines if " error: " in line][:5] or lines[-5:])


def _require_tool(extension: Extension, tool: str, search_path: str, remedy: str) -> None:
    if shutil.which(tool.split()[0], path=search_path) is None:
        raise RuntimeError(f"{extension.description} needs {tool} to be built: {remedy}")


def _import_library(name: str, library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.machinery.ModuleSpec(name, loader, origin=str(library))
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
