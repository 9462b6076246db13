"""Installation of impl under the names of torch.nn.parallel.

This module finds the objects of torch.nn.parallel by name, compares their identity, and never
calls them. The replaced functions and classes still refer to each other, so existing DataParallel
objects continue to run the code of torch.nn.parallel.
"""

import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from .._arguments import as_bool

#: The name of the package impl, which may be vendored under another name.
_PACKAGE = __name__.removesuffix(".extras.install")

#: For each package: the names in it that are replaced. impl defines the same names.
_NAMES = {
    "torch.nn": ("DataParallel",),
    "torch.nn.parallel": (
        *("DataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"),
        *("_functions", "comm", "scatter_gather"),
    ),
    "torch.cuda": ("comm",),
}
#: The package that defines the replaced objects.
_REFERENCE = "torch.nn.parallel"
_SUBMODULES = (
    "data_parallel",
    "parallel_apply",
    "replicate",
    "_functions",
    "comm",
    "scatter_gather",
)
#: For each replaced module: the module of impl that replaces it.
_MODULES = {f"{_REFERENCE}.{name}": name for name in _SUBMODULES} | {"torch.cuda.comm": "comm"}
#: Packages whose globals are not replaced: DistributedDataParallel keeps the original functions.
_NOT_REBOUND = ("torch.nn.parallel.distributed", "torch.distributed")
#: A placeholder for the old value of an entry that did not exist before the installation.
_ABSENT = object()


@dataclass(frozen=True, eq=False)
class _Change:
    """The replacement of one entry in the globals of a module or in ``sys.modules``."""

    entries: dict[str, Any]
    name: str
    before: Any
    after: Any

    def apply(self) -> None:
        self.entries[self.name] = self.after

    def undo(self) -> None:
        if self.entries.get(self.name) is not self.after:
            return  # Other code has replaced the entry after the installation.
        if self.before is _ABSENT:
            del self.entries[self.name]
        else:
            self.entries[self.name] = self.before


#: The active changes, in the order in which they were applied.
_changes: list[_Change] = []
_lock = threading.RLock()


def install(*, rebind: bool = False) -> None:
    """Replace ``torch.nn.parallel`` by this package, for the whole process.

    ``torch.nn.DataParallel``, ``torch.cuda.comm``, and the names and submodules of
    ``torch.nn.parallel`` then refer to this package, in every form of import.
    DistributedDataParallel and its module are not replaced. Further calls have no effect, and one
    :func:`uninstall` undoes all calls.

    Args:
        rebind: Whether to replace the old objects also in the globals of modules that have
            already imported them, except modules of ``torch.distributed``.

    Raises:
        ImportError: There is no ``torch.nn.parallel``.

    Warns:
        UserWarning: Modules have already imported old objects, or classes derive from old
            classes; the text lists them. If warnings are errors, nothing is replaced.

    Note:
        Models that are already wrapped keep the old DataParallel, and so do classes that already
        derive from it. Objects in attributes, closures and default arguments are not replaced. A
        model that is pickled while this package is installed can be loaded only where this package
        can be imported. Call this function before other threads run. Spawned processes have to
        call it again; forked processes do not.
    """
    _install(rebind=rebind, stacklevel=3)


def uninstall() -> None:
    """Undo every :func:`install`, and restore all replaced names, including rebound ones.

    A name that other code has changed after the installation keeps its value. A module that
    imported a name during the installation keeps the object of this package.
    """
    _undo()


@contextmanager
def installed(*, rebind: bool = False) -> Iterator[None]:
    """Return a context manager that calls :func:`install`, and undoes it at the end.

    Blocks may be nested. They change the whole process, so blocks of two threads must not overlap.
    An :func:`uninstall` in a block also undoes earlier installations.
    """
    count = len(_changes)
    try:
        _install(rebind=rebind, stacklevel=4)  # contextlib adds a frame.
        yield
    finally:
        _undo(count)


def _install(*, rebind: bool, stacklevel: int) -> None:
    rebind = as_bool("rebind", rebind)
    with _lock:
        new = [change for change in _list_changes() if change.before is not change.after]
        replacements = _map_replacements([*_changes, *new])
        references = list(_find_references(replacements))
        if new or (rebind and references):
            subclasses = _find_subclasses([*_changes, *new])
            _warn_about_old_objects(
                references, subclasses, rebind=rebind, stacklevel=stacklevel + 1
            )
        if rebind:
            new += [change for _, change in references]
        for change in new:
            change.apply()
        _changes.extend(new)


def _undo(count: int = 0) -> None:
    """Undo all changes after the first ``count`` ones."""
    with _lock:
        for change in reversed(_changes[count:]):
            change.undo()
        del _changes[count:]


def _list_changes() -> Iterator[_Change]:
    """Yield all changes that an installation consists of, including active ones."""
    package = sys.modules[_PACKAGE]
    for name, new_name in _MODULES.items():
        module = sys.modules[f"{package.__name__}.{new_name}"]
        yield _Change(sys.modules, name, sys.modules.get(name, _ABSENT), module)
    for holder, names in _NAMES.items():
        entries = vars(import_module(holder))
        for name in names:
            yield _Change(entries, name, entries.get(name, _ABSENT), vars(package)[name])


def _map_replacements(changes: Iterable[_Change]) -> dict[int, Any]:
    """Return a dictionary from the ``id`` of each old object to its replacement."""
    pairs = [(change.before, change.after) for change in changes]
    modules = [pair for pair in pairs if isinstance(pair[0], ModuleType)]
    for old, new in modules:
        entries = [(value, vars(new).get(name)) for name, value in [*vars(old).items()]]
        # Do not replace objects that the old module only imported: other modules use them, too.
        pairs += [pair for pair in entries if _is_below(_defining_module(pair[0]), _REFERENCE)]
    return {
        id(old): new
        for old, new in pairs
        if old is not new
        and isinstance(old, ModuleType | type | FunctionType)
        and _is_below(_defining_module(new), _PACKAGE)
    }


def _defining_module(value: Any) -> str | None:
    return value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)


def _is_below(module: str | None, *packages: str) -> bool:
    return f"{module}.".startswith(tuple([f"{package}." for package in packages]))


def _find_references(replacements: dict[int, Any]) -> Iterator[tuple[str, _Change]]:
    """Yield the module name and the change of each global that refers to an old object."""
    # The main module may have two names in `sys.modules`. Use the first one.
    modules = {id(module): (name, module) for name, module in reversed([*sys.modules.items()])}
    for name, module in sorted(modules.values(), key=lambda each: each[0]):
        if not isinstance(module, ModuleType) or id(module) in replacements:
            continue
        if name in _NAMES or _is_below(name, *_NOT_REBOUND):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in replacements:
                yield name, _Change(vars(module), key, value, replacements[id(value)])


def _find_subclasses(changes: Iterable[_Change]) -> list[str]:
    """Return the names of the classes that derive from old classes, at any depth."""
    todo: list[type] = [each.before for each in changes if isinstance(each.before, type)]
    subclasses: set[type] = set()
    while todo:
        new: set[type] = set(type.__subclasses__(todo.pop())) - subclasses
        subclasses |= new
        todo += new
    return sorted(f"{each.__module__}.{each.__qualname__}" for each in subclasses)


def _warn_about_old_objects(
    references: Iterable[tuple[str, _Change]],
    subclasses: Sequence[str],
    *,
    rebind: bool,
    stacklevel: int,
) -> None:
    """Warn about modules and classes that refer to old objects."""
    names: dict[str, list[str]] = {}
    for module, change in references:
        names.setdefault(module, []).append(change.name)
    listed = "; ".join(f"{module}: {', '.join(sorted(keys))}" for module, keys in names.items())
    lines = []
    if names:
        state = "rebound" if rebind else "not replaced without rebind=True"
        lines.append(f"imported from torch.nn.parallel before the installation, {state}: {listed}")
    if subclasses:
        lines.append(f"still derived from replaced classes: {', '.join(subclasses)}")
    if lines:
        warnings.warn("\n".join(lines), UserWarning, stacklevel=stacklevel)
