"""Builds, caches and imports the C++ extension of the simulator.

``torch.utils.cpp_extension`` compiles it into its usual cache.
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
from pathlib import Path
from types import ModuleType

import torch

#: The folder of the ``*.cpp`` files to compile.
SOURCES = Path(__file__).parent / "csrc"
_FLAGS = ("-O1", "-std=c++20")
#: The subject of error messages.
_NAME = "the simulated accelerator"


class MissingToolError(RuntimeError):
    """The simulator cannot be built, because the compiler or ninja is missing."""


# Build in a subprocess, because cpp_extension is slow to import, prints, and loads the library.
_PROGRAM = """
import json, sys
from torch.utils import cpp_extension
cpp_extension.load(**json.loads(sys.argv[1]))
"""


def library(sources: Path = SOURCES) -> Path:
    """Return the path of the compiled library in the cache.

    Its folder has a digest of the sources, the flags, and the versions of PyTorch and Python.
    Checkouts with equal sources share one library, because no path is a part of the digest.
    """
    digest = hashlib.sha256()
    for part in (torch.__version__, sysconfig.get_config_var("SOABI"), *_FLAGS):
        digest.update(f"{part}\n".encode())
    for source in sorted(path for path in sources.rglob("*") if path.is_file()):
        digest.update(source.read_bytes())
    name = f"sim_{digest.hexdigest()[:16]}"
    return _cache_folder() / name / f"{name}.so"


def load() -> ModuleType:
    """Import the simulated accelerator and return the module; build it first if needed.

    Raises:
        RuntimeError: The compiler or ninja is missing, the compilation fails, or the cache
            folder cannot be written to.
    """
    return _import_library(build())


def build() -> Path:
    """Build the library unless it is in the cache, and return its path. Raise as `load` does."""
    path = library()
    if not path.exists():
        _create_folder(path.parent)
        with _lock_file(path.parent / "lock") as lock:
            if not path.exists():
                built = _build(path.stem, path.parent / "build", lock)
                os.replace(built, path)
    return path


def _create_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
    except OSError as error:
        remedy = "set TORCH_EXTENSIONS_DIR to a writable folder"
        raise RuntimeError(f"{_NAME} is cached in {folder}: {error}; {remedy}") from None


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


def _build(name: str, folder: Path, lock_descriptor: int) -> Path:
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    compiler = os.environ.get("CXX", "c++")
    _require_tool(compiler, search_path, "install g++ 11 or newer, or set CXX to a C++20 compiler")
    _require_tool("ninja", search_path, "install it with `pip install ninja`")
    text = f"compiling {_NAME} with {compiler}, once; the result is cached in {folder.parent}"
    print(text, file=sys.stderr, flush=True)
    folder.mkdir(exist_ok=True)
    (folder / "lock").unlink(missing_ok=True)  # exists if an earlier build was killed
    arguments = {
        "name": name,
        "sources": _write_unity_sources(sorted(SOURCES.glob("*.cpp")), folder),
        "extra_cflags": list(_FLAGS),
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
            f"{_NAME} could not be built with {compiler} (it needs C++20, "
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


def _require_tool(tool: str, search_path: str, remedy: str) -> None:
    if shutil.which(tool.split()[0], path=search_path) is None:
        raise MissingToolError(f"{_NAME} needs {tool} to be built: {remedy}")


def _import_library(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(path.stem, str(path))
    spec = importlib.machinery.ModuleSpec(path.stem, loader, origin=str(path))
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
