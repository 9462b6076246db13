"""Wrap the public functions, autograd Functions and methods of a target, in place."""

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd import Function

from impl_tests.wrong import Perturbation, state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.facts import facts_of
from impl_tests.wrong.kinds import perturbed
from spec_tests.harness.environment.target import PARTS

__all__ = ["TARGET", "functions", "signatures", "wrap"]

#: The package whose functions the suite is run on.
TARGET = "impl"

#: Methods of a wrapper class that are wrapped, too.
_METHODS = ("__init__", "forward", "scatter", "replicate", "parallel_apply", "gather")
_OWN_METHODS = ("hold", "map", "no_sync", "part", "mean", "convert_sync_batchnorm")
#: Modules of a target that torch.nn.parallel lacks. Only the methods that their classes define are
#: wrapped, not the inherited ones.
_ADDED = ("extras.batch_norm", "extras.loss")
#: The names of the reference's private functions that other packages import.
_LEGACY = {
    "comm": ("_get_device_index", "_handle_complex"),
    "functions": ("_get_stream",),
    "scatter_gather": ("is_namedtuple", "_is_namedtuple"),
    "replicate": (
        "_broadcast_coalesced_reshape",
        "_init_script_module",
        "_is_jit_enabled",
        "_is_script_method",
        "_is_script_module",
        "_replicatable_module",
    ),
    "parallel_apply": ("get_a_var", "_get_device_index"),
    "data_parallel": ("_check_balance", "_get_available_device_type"),
}


def wrap(target: str, selected: frozenset[str] | None) -> None:
    """Wrap public functions of a target in place.

    Args:
        target: The name of the package.
        selected: The functions to wrap, such as ``comm.scatter``; None for all.
    """
    package = importlib.import_module(target)
    for name, owner, attribute in functions(target):
        if selected is None or name in selected:
            _wrap_attribute(package, name, owner, attribute)


def functions(target: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each function that can be wrapped, its owner and its attribute."""
    for name in _ADDED:
        module = _import(target, name)
        for attribute in getattr(module, "__all__", ()):
            owner = getattr(module, attribute)
            for method in {*_METHODS, *_OWN_METHODS} & vars(owner).keys():
                yield f"{name.rpartition('.')[2]}.{attribute}.{method}", owner, method
    for part, module in _parts(target):
        public = [*getattr(module, "__all__", ()), *_LEGACY.get(part, ())]
        for attribute in dict.fromkeys(public):
            value = getattr(module, attribute, None)
            name = f"{part}.{attribute}"
            if isinstance(value, type):
                yield from _methods(name, value)
            elif isinstance(value, types.FunctionType):
                yield name, module, attribute


def _parts(target: str) -> Iterator[tuple[str, types.ModuleType]]:
    for part, candidates in {**PARTS, "distributed": ("distributed",)}.items():
        modules = [_import(target, candidate) for candidate in candidates]
        yield from [(part, module) for module in modules if module is not None][:1]


def _import(target: str, name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(f"{target}.{name}")
    except ModuleNotFoundError:
        return None


def _methods(name: str, owner: type) -> Iterator[tuple[str, type, str]]:
    if issubclass(owner, Function):
        yield name, owner, "apply"
        yield f"{name}.backward", owner, "backward"
    elif issubclass(owner, nn.Module):
        methods = [*_METHODS, *_OWN_METHODS]
        bases = [base for base in owner.__mro__ if not base.__module__.startswith("torch.")]
        yield from (
            (f"{name}.{method}", owner, method)
            for method in methods
            if any(method in vars(base) for base in bases)
        )


def signatures(target: str) -> Iterator[tuple[str, inspect.Signature]]:
    """Yield the name and the signature of each function that can be wrapped."""
    for name, owner, attribute in functions(target):
        yield name, _signature(owner, attribute)


def _signature(owner: Any, attribute: str) -> inspect.Signature:
    original = inspect.getattr_static(owner, attribute)
    if not isinstance(original, classmethod):
        return inspect.signature(getattr(original, "__func__", original))
    function = owner.forward if issubclass(owner, Function) else original.__func__
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]  # without ctx, or without the class
    return signature.replace(parameters=parameters)


def _wrap_attribute(package: types.ModuleType, name: str, owner: Any, attribute: str) -> None:
    original = inspect.getattr_static(owner, attribute)
    signature = _signature(owner, attribute)
    if isinstance(original, classmethod):
        outer = _wrapper(name, original.__func__, signature, package.__name__, bound=True)
        setattr(owner, attribute, classmethod(outer))
        return
    if isinstance(original, staticmethod):
        setattr(owner, attribute, staticmethod(_wrapper(name, original.__func__, signature)))
        return
    outside = None if isinstance(owner, type) else package.__name__
    wrapper = _wrapper(name, original, signature, outside)
    for module in [owner, package, *_aliases(owner)]:
        if inspect.getattr_static(module, attribute, None) is original:
            setattr(module, attribute, wrapper)


def _aliases(owner: Any) -> list[types.ModuleType]:
    """Return other modules under which a target offers a part: ``_functions``."""
    name = getattr(owner, "__name__", "")
    other = name.removesuffix(".functions") + "._functions"
    return [sys.modules[other]] if other in sys.modules else []


def _wrapper(
    name: str,
    function: Callable[..., Any],
    signature: inspect.Signature,
    package: str | None = None,
    *,
    bound: bool = False,
) -> Callable[..., Any]:
    """Return a function that calls ``function`` with the active perturbation.

    Args:
        name: The name of the function in perturbations.
        function: The function.
        signature: The signature of the function, without the class if ``bound``.
        package: Calls by modules of this package are not changed; None to change all calls.
        bound: Whether the first argument is a class.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        text = "" if torch.compiler.is_compiling() else state.active(name)
        if not text or (package is not None and _is_inside(sys._getframe(1), package)):
            return function(*args, **kwargs)
        leading, rest = (args[:1], args[1:]) if bound else ((), args)
        target = functools.partial(function, *leading) if bound else function
        try:
            call = Call(target, signature.bind(*rest, **kwargs))
            facts = facts_of(call)
        except (TypeError, RecursionError):  # a wrong call, or deeply nested arguments
            return function(*args, **kwargs)
        if text.startswith(state.LOGGING):
            state.record(text.removeprefix(state.LOGGING), name, facts)
            return call.run()
        perturbation = Perturbation.parse(text)
        if not perturbation.guard <= facts:
            return call.run()
        return perturbed(perturbation.kind, call)

    if name in os.environ.get(state.SIGNATURES, "").split(","):
        del wrapper.__wrapped__
    _skip_frames(wrapper, has_callees="_torchdynamo_disable" in vars(function))
    return wrapper


def _skip_frames(function: Any, *, has_callees: bool) -> None:
    """Exclude a function from torch.compile and, with ``has_callees``, the functions it calls."""
    dynamo = torch._C._dynamo.eval_frame
    skip, default = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
    # A code object of its own: wrappers of all functions share one otherwise.
    function.__code__ = function.__code__.replace()
    strategy = dynamo._FrameExecStrategy(skip, skip if has_callees else default)
    dynamo.set_code_exec_strategy(function.__code__, strategy)


for _function in (state.record, perturbed, facts_of, state.active, Call.run):
    _skip_frames(_function, has_callees=_function is not Call.run)


def _is_inside(frame: types.FrameType, package: str) -> bool:
    caller = str(frame.f_globals.get("__name__", ""))
    return caller == package or caller.startswith(f"{package}.")
