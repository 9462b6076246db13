"""Replace public functions of impl in place: make their calls wrong, or record their calls."""

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import Function

from impl_tests.weekly.perturbations import DEVICES, Perturbation, load
from impl_tests.weekly.perturbations.calls import BoundCall
from impl_tests.weekly.perturbations.facts import facts_of
from impl_tests.weekly.perturbations.kinds import OTHER_SIGNATURE, perturbed

__all__ = ["LINE", "LOG", "TARGET", "replace_functions", "signature_of"]

#: The package whose functions the suite is run on.
TARGET = "impl"
#: Environment variables. The first is the perturbation of this process and of those that it
#: starts. If it is empty, all calls are recorded in the file that the second names.
LINE, LOG = "PERTURBATION", "PERTURBATION_LOG"
#: A function of the name of a function, its call, and the facts of the call. It makes the call.
_Change = Callable[[str, BoundCall, frozenset[str]], Any]
_recorded: set[str] = set()


def replace_functions() -> None:
    """Make a function of impl wrong, or record the calls of all functions of the table."""
    line = os.environ[LINE]
    if not line:
        for name in {perturbation.function for perturbation in load().values()} - {DEVICES}:
            _replace(name, _record)
    elif (perturbation := Perturbation.parse(line)).function != DEVICES:
        replacement = _replace(perturbation.function, functools.partial(_perturb, perturbation))
        if perturbation.kind == OTHER_SIGNATURE:
            del replacement.__wrapped__


def _perturb(perturbation: Perturbation, name: str, call: BoundCall, facts: frozenset[str]) -> Any:
    return perturbed(perturbation.kind, call) if perturbation.guard <= facts else call.run()


def _record(name: str, call: BoundCall, facts: frozenset[str]) -> Any:
    _write(name, facts)
    return call.run()


def _write(name: str, facts: frozenset[str]) -> None:
    """Append a call to the log, once for each test, function and set of facts."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    line = "\t".join([test, name, " ".join(sorted(facts))])
    if line not in _recorded:
        _recorded.add(line)
        with Path(os.environ[LOG]).open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")


def _find(name: str) -> tuple[Any, str]:
    """Return the owner and the attribute of the function with a name of the table."""
    part, *path, attribute = name.split(".")
    owner = functools.reduce(getattr, path, importlib.import_module(f"{TARGET}.{part}"))
    value = getattr(owner, attribute)
    is_function = isinstance(value, type) and issubclass(value, Function)
    return (value, "apply") if is_function else (owner, attribute)


def signature_of(name: str) -> inspect.Signature:
    """Return the signature of the function with a name of the table."""
    owner, attribute = _find(name)
    original = inspect.getattr_static(owner, attribute)
    if not isinstance(original, classmethod):
        return inspect.signature(getattr(original, "__func__", original))
    signature = inspect.signature(owner.forward)
    parameters = list(signature.parameters.values())[1:]  # without ctx
    return signature.replace(parameters=parameters)


def _replace(name: str, change: _Change) -> Any:
    """Replace a function; return the replacement."""
    owner, attribute = _find(name)
    original = inspect.getattr_static(owner, attribute)
    is_descriptor = isinstance(original, (classmethod, staticmethod))
    function: Any = original.__func__ if is_descriptor else original
    replacement = _make_replacement(
        functools.partial(change, name),
        function,
        signature_of(name),
        has_class=isinstance(original, classmethod),
        # impl itself calls methods and backward functions.
        changes_all=isinstance(owner, type) and not isinstance(original, classmethod),
    )
    if is_descriptor:
        setattr(owner, attribute, type(original)(replacement))
        return replacement
    # impl offers the functions of `functions` also in `_functions`.
    for other in (owner, *map(importlib.import_module, (TARGET, f"{TARGET}._functions"))):
        if inspect.getattr_static(other, attribute, None) is original:
            setattr(other, attribute, replacement)
    return replacement


def _make_replacement(
    change: Callable[[BoundCall, frozenset[str]], Any],
    function: Callable[..., Any],
    signature: inspect.Signature,
    *,
    has_class: bool,
    changes_all: bool,
) -> Any:
    """Return a function that makes the calls of ``function`` by ``change``.

    Args:
        change: A function of a call and its facts. It makes the call.
        function: The function.
        signature: The signature of the function, without the class.
        has_class: Whether the first argument is a class.
        changes_all: Whether calls by impl itself change, too.
    """

    @functools.wraps(function)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        # Tests of compilers trace the replacement: it must not do more than this in their graphs.
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not changes_all and _is_inside(sys._getframe(1)):
            return function(*args, **kwargs)
        target = functools.partial(function, *args[:1]) if has_class else function
        try:
            call = BoundCall(target, signature.bind(*args[has_class:], **kwargs))
            facts = facts_of(call)
        except (TypeError, RecursionError):  # a wrong call, or deeply nested arguments
            return function(*args, **kwargs)
        return change(call, facts)

    _skip_frames(replacement, has_callees="_torchdynamo_disable" in vars(function))
    return replacement


def _is_inside(frame: types.FrameType) -> bool:
    """Return whether a frame is one of impl."""
    caller = str(frame.f_globals.get("__name__", ""))
    return caller == TARGET or caller.startswith(f"{TARGET}.")


def _skip_frames(function: Any, *, has_callees: bool) -> None:
    """Exclude a function from torch.compile and, with ``has_callees``, the functions it calls."""
    dynamo = torch._C._dynamo.eval_frame
    skip, default = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
    # A code object of its own: replacements of all functions share one otherwise.
    function.__code__ = function.__code__.replace()
    strategy = dynamo._FrameExecStrategy(skip, skip if has_callees else default)
    dynamo.set_code_exec_strategy(function.__code__, strategy)


_WITH_CALLEES: tuple[Any, ...] = (_write, perturbed, facts_of)
for _function in (_perturb, _record, BoundCall.run, *_WITH_CALLEES):
    _skip_frames(_function, has_callees=_function in _WITH_CALLEES)
