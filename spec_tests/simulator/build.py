"""Building an extension once, and finding it again.

``torch.utils.cpp_extension`` builds it, in its usual cache, in a folder whose name is derived
from the sources and from the versions they are built with.
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

__all__ = ["SIMULATOR", "Extension", "load"]

# In a process of its own: cpp_extension is slow to import, prints, and loads what it builds.
_PROGRAM = """
import json, sys
from torch.utils import cpp_extension
cpp_extension.load(**json.loads(sys.argv[1]))
"""


@dataclass(frozen=True)
class Extension:
    """What to build: the simulator, or the C++ front end of spec_tests/cpp_front_end.

    Args:
        name: The first part of the library's name.
        purpose: What it is, for messages.
        folder: Its ``*.cpp`` files are compiled.
        flags: Options of the compiler.
    """

    name: str
    purpose: str
    folder: Path
    flags: tuple[str, ...] = ("-O1", "-std=c++20")

    @property
    def key(self) -> str:
        """A digest of everything that the library depends on."""
        digest = hashlib.sha256()
        for part in (torch.__version__, sysconfig.get_config_var("SOABI"), *self.flags):
            digest.update(f"{part}\n".encode())
        for source in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            digest.update(source.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def library(self) -> Path:
        """Where it lies once it is built."""
        name = f"{self.name}_{self.key}"
        return _cache() / name / f"{name}.so"


SIMULATOR = Extension("sim", "the simulated accelerator", Path(__file__).parent / "csrc")


def load(extension: Extension = SIMULATOR) -> ModuleType:
    """Import ``extension``, after building it if no process has done so before.

    Raises:
        RuntimeError: There is no compiler, no ninja, the compiler refuses the sources, or there
            is no place for the library.
    """
    library = extension.library
    name, folder = library.stem, library.parent
    if not library.exists():
        _make(folder, extension)
        with _alone(folder / "lock") as lock:
            if not library.exists():
                os.replace(_build(extension, name, folder / "build", lock), library)
    return _import(name, library)


def _make(folder: Path, extension: Extension) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
    except OSError as error:
        remedy = "name a folder that can be written to in TORCH_EXTENSIONS_DIR"
        raise RuntimeError(f"{extension.purpose} is kept in {folder}: {error}; {remedy}") from None


def _cache() -> Path:
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "torch_extensions"


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Let one process in at a time, which holds the lock as long as its children hold the file."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _build(extension: Extension, name: str, folder: Path, lock: int) -> Path:
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    compiler = os.environ.get("CXX", "c++")
    _require(
        extension, compiler, search, "install g++ 11 or newer, or name a C++20 compiler in CXX"
    )
    _require(extension, "ninja", search, "install it with `pip install ninja`")
    folder.mkdir(exist_ok=True)
    (folder / "lock").unlink(missing_ok=True)  # of a build that was killed
    order = {
        "name": name,
        "sources": _parts(sorted(extension.folder.glob("*.cpp")), folder),
        "extra_cflags": list(extension.flags),
        "build_directory": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(order)],
        env={**os.environ, "PATH": search},
        pass_fds=[lock],  # who dies leaves the compiler running, and nobody may disturb it
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{extension.purpose} could not be built with {compiler} (it needs C++20, "
            f"g++ 11 or newer):\n{_first_errors(done.stderr)}"
        )
    return folder / f"{name}.so"


def _parts(sources: list[Path], folder: Path) -> list[str]:
    """As many files as there are cores, which include the sources: most of the work is headers."""
    count = min(len(sources), os.cpu_count() or 1)
    parts: list[list[Path]] = [[] for _ in range(count)]
    for source in sorted(sources, key=lambda path: path.stat().st_size, reverse=True):
        min(parts, key=lambda part: sum(path.stat().st_size for path in part)).append(source)
    names = [folder / f"part{number}.cpp" for number in range(count)]
    for name, part in zip(names, parts, strict=True):
        name.write_text("".join(f'#include "{path}"\n' for path in part), encoding="utf-8")
    return [str(name) for name in names]


def _first_errors(text: str) -> str:
    """What the compiler says first; where it says nothing, the last that was said at all."""
    lines = text.splitlines()
    return "\n".join([line for line in lines if " error: " in line][:5] or lines[-5:])


def _require(extension: Extension, tool: str, search: str, remedy: str) -> None:
    if shutil.which(tool.split()[0], path=search) is None:
        raise RuntimeError(f"{extension.purpose} needs {tool} to be built: {remedy}")


def _import(name: str, library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.machinery.ModuleSpec(name, loader, origin=str(library))
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
