"""Building an extension once, and finding it again.

The library lies where ``torch.utils.cpp_extension`` keeps what it builds, in a folder whose name
is derived from the sources and from the versions they were built with.
"""

import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

__all__ = ["Extension", "load"]


@dataclass(frozen=True)
class Extension:
    """What to build.

    Args:
        name: The first part of its name.
        folder: Its ``*.cpp`` files are compiled; the folder is where they find their headers.
        flags: Options of the compiler, beside the C++ version.
    """

    name: str
    folder: Path
    flags: tuple[str, ...] = ("-O1",)

    @property
    def order(self) -> dict[str, object]:
        """The arguments of ``torch.utils.cpp_extension.load``, but for the names."""
        return {
            "sources": [str(path) for path in sorted(self.folder.glob("*.cpp"))],
            "extra_cflags": [*self.flags, "-std=c++20"],
            "extra_include_paths": [str(self.folder)],
        }

    @property
    def key(self) -> str:
        """A digest of everything that the library depends on."""
        digest = hashlib.sha256()
        for part in (torch.__version__, sysconfig.get_config_var("SOABI"), *self.flags):
            digest.update(f"{part}\n".encode())
        for source in sorted(self.folder.rglob("*")):
            if source.suffix in (".cpp", ".h"):
                digest.update(source.read_bytes())
        return digest.hexdigest()[:16]


SIM = Extension("sim", Path(__file__).parent / "csrc")

_COMPILE = """
import json, sys
from torch.utils import cpp_extension
cpp_extension.load(**json.loads(sys.argv[1]))
"""


def load(extension: Extension = SIM) -> ModuleType:
    """Import ``extension``, after building it if no process has done so before.

    Raises:
        RuntimeError: The extension cannot be compiled, for example for want of a compiler.
    """
    name = f"{extension.name}_{extension.key}"
    folder = _root() / name
    library = folder / f"{name}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _sole(folder / "lock"):
            if not library.exists():
                _build(name, folder, extension)
    return _import(name, library)


def _root() -> Path:
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "torch_extensions"


@contextlib.contextmanager
def _sole(path: Path) -> Iterator[None]:
    """Let one process at a time in; a process that dies leaves no lock behind."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(name: str, folder: Path, extension: Extension) -> None:
    import json

    workshop = folder / "build"
    workshop.mkdir(exist_ok=True)
    (workshop / "lock").unlink(missing_ok=True)  # left by a build that was killed
    order = {**extension.order, "name": name, "build_directory": str(workshop)}
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    command = [sys.executable, "-c", _COMPILE, json.dumps(order)]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    os.replace(workshop / f"{name}.so", folder / f"{name}.so")


def _import(name: str, library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
