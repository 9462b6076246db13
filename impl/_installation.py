"""impl in the places of torch.nn.parallel, for code that names those.

What is replaced is reached by name, and only its identity is used: nothing of it is called.
Functions and classes of the reference keep each other, so an object that was made before goes on
with the code it was made with.
"""

import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["install", "installed", "uninstall"]

#: Packages that stay, and the names in them that change; this package has all of those.
_NAMES = {
    "torch.nn": ("DataParallel",),
    "torch.nn.parallel": (
        *("DataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"),
        *("_functions", "comm", "scatter_gather"),
    ),
    "torch.cuda": ("comm",),
}
#: Modules that change, and this package's in their places.
_MODULES = {
    "torch.cuda.comm": "comm",
    "torch.nn.parallel._functions": "_functions",
    "torch.nn.parallel.comm": "comm",
    "torch.nn.parallel.data_parallel": "data_parallel",
    "torch.nn.parallel.parallel_apply": "parallel_apply",
    "torch.nn.parallel.replicate": "replicate",
    "torch.nn.parallel.scatter_gather": "scatter_gather",
}
#: Modules whose names stay as they are: DistributedDataParallel is not replaced, nor is what it
#: has taken from the modules beside it.
_LEFT_ALONE = ("torch.nn.parallel.distributed", "torch.distributed")
#: What the replaced objects are made in.
_REFERENCE = "torch.nn.parallel"
_ABSENT = object()


@dataclass(frozen=True, eq=False)
class _Change:
    """What an entry of a module, or of ``sys.modules``, was and is."""

    entries: dict[str, Any]
    name: str
    before: Any
    after: Any

    def make(self) -> None:
        self.entries[self.name] = self.after

    def undo(self) -> None:
        if self.entries.get(self.name) is not self.after:
            return  # Somebody else's by now.
        if self.before is _ABSENT:
            del self.entries[self.name]
        else:
            self.entries[self.name] = self.before


#: The changes in force, in the order in which they were made.
_changes: list[_Change] = []
_lock = threading.RLock()


def install(*, rebind: bool = False) -> None:
    """Put this package in the places of ``torch.nn.parallel``, for the whole process.

    From now on ``torch.nn.DataParallel``, ``torch.cuda.comm``, and the names and submodules of
    ``torch.nn.parallel`` are this package's, whichever way they are imported.
    DistributedDataParallel and its module stay. Where all is in place already nothing happens:
    calls are not counted, and one :func:`uninstall` undoes them all.

    Args:
        rebind: Replace the old objects in the global names of modules that took them before,
            too, but for those of ``torch.distributed``.

    Raises:
        ImportError: There is no ``torch.nn.parallel``.

    Warns:
        UserWarning: Modules took old objects before, or classes derive from the old
            ones; they are named. Where warnings are errors nothing is replaced.

    Note:
        Models that were wrapped before, and classes that were derived before, stay with
        the old DataParallel, and are no instances of the new one; objects in attributes,
        closures and default arguments are not looked for. What is pickled meanwhile names this
        package. Call it first, before other threads run; processes that are spawned, not
        forked, need a call of their own.
    """
    _install(rebind=rebind, level=3)


def uninstall() -> None:
    """Undo every :func:`install`: all entries are again what they were, rebound ones included.

    An entry that somebody else has changed since stays as it is, as do names that modules
    took from the replaced ones meanwhile. Where nothing is in place nothing happens.
    """
    _return_to(())


@contextmanager
def installed(*, rebind: bool = False) -> Iterator[None]:
    """Do :func:`install` for a block, and return to what was in place before, however it ends.

    Blocks may be nested. The whole process is changed, so two threads' blocks must not overlap.

    Args:
        rebind: As for :func:`install`.

    Raises:
        ImportError: There is no ``torch.nn.parallel``.
    """
    with _lock:
        before = tuple(_changes)
    try:
        _install(rebind=rebind, level=4)  # contextlib calls this.
        yield
    finally:
        _return_to(before)


def _install(*, rebind: bool, level: int) -> None:
    with _lock:
        made = [change for change in _replacements() if change.before is not change.after]
        successors = _successors([*_changes, *made])
        found = list(_taken(successors))
        if made or (rebind and found):
            _warn(found, _derived([*_changes, *made]), rebind=rebind, level=level + 1)
        if rebind:
            made += [change for _, change in found]
        for change in made:
            change.make()
        _changes.extend(made)


def _return_to(changes: Sequence[_Change]) -> None:
    """Make ``changes`` those in force."""
    with _lock:
        both = takewhile(lambda pair: pair[0] is pair[1], zip(_changes, changes, strict=False))
        shared = len(list(both))
        for change in reversed(_changes[shared:]):
            change.undo()
        for change in changes[shared:]:
            change.make()
        _changes[:] = changes


def _replacements() -> Iterator[_Change]:
    """Yield what has to be in place, and what is there now."""
    package = sys.modules[__name__.rpartition(".")[0]]
    for name, ours in _MODULES.items():
        module = sys.modules[f"{package.__name__}.{ours}"]
        yield _Change(sys.modules, name, sys.modules.get(name, _ABSENT), module)
    for holder, names in _NAMES.items():
        entries = vars(import_module(holder))
        for name in names:
            yield _Change(entries, name, entries.get(name, _ABSENT), vars(package)[name])


def _successors(changes: Iterable[_Change]) -> dict[int, Any]:
    """What stands in for each old object, by the identity of that."""
    pairs = [(change.before, change.after) for change in changes]
    modules = [pair for pair in pairs if isinstance(pair[0], ModuleType)]
    for old, new in modules:
        entries = [(value, vars(new).get(name)) for name, value in [*vars(old).items()]]
        # A module has names from elsewhere, too, and other modules have them from there.
        pairs += [pair for pair in entries if _is_below(_home(pair[0]), _REFERENCE)]
    return {id(old): new for old, new in pairs if old is not new and _is_ours(old, new)}


def _is_ours(old: Any, new: Any) -> bool:
    """Tell whether both are objects to look for: no None, no type variable, nothing of others."""
    known = isinstance(old, ModuleType | type | FunctionType)
    return known and _is_below(_home(new), __name__.rpartition(".")[0])


def _home(value: Any) -> str | None:
    """Return the name of a module, or of the module that a function or class is made in."""
    return value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)


def _is_below(module: str | None, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _taken(successors: dict[int, Any]) -> Iterator[tuple[str, _Change]]:
    """Yield the global names of other modules that hold old objects, with their modules' names."""
    # The main module may have two names, of which the first is told.
    modules = {id(module): (name, module) for name, module in reversed([*sys.modules.items()])}
    for name, module in sorted(modules.values(), key=lambda each: each[0]):
        if not isinstance(module, ModuleType) or id(module) in successors:
            continue
        if name in _NAMES or f"{name}.".startswith(tuple(f"{left}." for left in _LEFT_ALONE)):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in successors:
                yield name, _Change(vars(module), key, value, successors[id(value)])


def _derived(changes: Iterable[_Change]) -> list[str]:
    """Name the classes that derive from old classes, at any depth."""
    todo: list[type] = [each.before for each in changes if isinstance(each.before, type)]
    found: set[type] = set()
    while todo:
        new: set[type] = set(type.__subclasses__(todo.pop())) - found
        found |= new
        todo += new
    return sorted(f"{each.__module__}.{each.__qualname__}" for each in found)


def _warn(
    found: Iterable[tuple[str, _Change]], derived: Sequence[str], *, rebind: bool, level: int
) -> None:
    """Say which modules and classes know the old objects, if any do."""
    names: dict[str, list[str]] = {}
    for module, change in found:
        names.setdefault(module, []).append(change.name)
    listed = "; ".join(f"{module}: {', '.join(sorted(keys))}" for module, keys in names.items())
    lines = []
    if listed:
        what = "they are rebound" if rebind else "they stay; rebind=True replaces them"
        lines.append(f"taken from torch.nn.parallel before it was replaced, {what}: {listed}")
    if derived:
        lines.append(f"derived from what was replaced, and stay so: {', '.join(derived)}")
    if lines:
        warnings.warn("\n".join(lines), UserWarning, stacklevel=level)
