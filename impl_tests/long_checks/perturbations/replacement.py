"""Replace a public function of impl in place, so that its calls are wrong."""

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function

from impl_tests.long_checks.perturbations import DEVICES, PERTURBATION
from impl_tests.long_checks.perturbations.calls import BoundCall
from impl_tests.long_checks.perturbations.kinds import OTHER_SIGNATURE, perturbed

#: The package whose functions the suite is run on.
TARGET = "impl"


def replace_function() -> None:
    """Make the calls of a function of impl wrong."""
    name, kind = os.environ[PERTURBATION].split()
    if name != DEVICES:
        replacement = _replace(name, kind)
        if kind == OTHER_SIGNATURE:
            del replacement.__wrapped__


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


def _replace(name: str, kind: str) -> Any:
    """Replace a function of the table; return the replacement."""
    owner, attribute = _find(name)
    original = inspect.getattr_static(owner, attribute)
    is_descriptor = isinstance(original, (classmethod, staticmethod))
    function: Any = original.__func__ if is_descriptor else original
    replacement = _make_replacement(
        kind,
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
    kind: str,
    function: Callable[..., Any],
    signature: inspect.Signature,
    *,
    has_class: bool,
    changes_all: bool,
) -> Any:
    """Return a function that makes wrong calls of ``function``.

    Args:
        kind: The kind of the perturbation.
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
        except TypeError:  # arguments that the signature does not have
            return function(*args, **kwargs)
        return perturbed(kind, call)

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


_skip_frames(BoundCall.run, has_callees=False)
_skip_frames(perturbed, has_callees=True)
