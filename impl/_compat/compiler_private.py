"""The private names of torch.compile that impl uses. ``torch_private`` explains the docstrings."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import nn

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The reason that torch.compile prints if it leaves a call of impl out of its graphs.
_REASON = (
    "a graph holds the work of one device; to compile the work of each of several devices, "
    "compile the module itself, as in DataParallel(torch.compile(module))"
)


def is_compilation_loaded() -> bool:
    """Return whether ``torch.compile`` has been loaded, so that compiled modules may exist.

    Name: ``torch._dynamo.eval_frame.OptimizedModule``, in 2.11 and later.
    Without it: as for :func:`is_compiled`.
    """
    # Do not import the module, which takes seconds. Before its import no module is compiled. While
    # another thread imports it, the module lacks the class.
    return hasattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule")


def is_compiled(module_class: type[nn.Module]) -> bool:
    """Return whether ``module_class`` is the class of modules that ``torch.compile`` returns.

    Name: ``torch._dynamo.eval_frame.OptimizedModule``, in 2.11 and later.
    Without it: a replica of a compiled module would assign its members to the original module.
    """
    if not is_compilation_loaded():
        return False
    return issubclass(module_class, sys.modules["torch._dynamo.eval_frame"].OptimizedModule)


def compiled_module(module: nn.Module) -> nn.Module | None:
    """Return the original module if ``module`` is a wrapper from ``torch.compile``, else None.

    Name: the attributes ``_torchdynamo_orig_callable`` and ``_orig_mod``, in 2.11 and later.
    Without it: a replica would run the compiled code of the module, with the module's weights.
    """
    if "_torchdynamo_orig_callable" not in module.__dict__:
        return None
    return module.get_submodule("_orig_mod")


def compiler_of_wrapper(module: nn.Module) -> Callable[..., Any] | None:
    """Return a function that compiles with the options that ``torch.compile`` got for ``module``.

    ``module`` is a wrapper from ``torch.compile``.

    Name: the attribute ``dynamo_ctx`` of ``OptimizedModule``, in 2.11 and later.
    Without it: None, and replicas of compiled modules run uncompiled.
    """
    return getattr(module, "dynamo_ctx", None)


def compiler_of_module(module: nn.Module) -> Callable[..., Any] | None:
    """Return a function that compiles with the options of the call ``module.compile()``.

    Name: ``self`` in the closure of the attribute ``_compiled_call_impl``, in 2.11 and later.
    Without it: None, and replicas of such modules run uncompiled.
    """
    call = module.__dict__["_compiled_call_impl"]
    names = getattr(getattr(call, "__code__", None), "co_freevars", ())
    found = dict(zip(names, getattr(call, "__closure__", None) or (), strict=False)).get("self")
    return None if found is None else found.cell_contents


def exclude_from_compilation(function: _Function, *, has_callees: bool = True) -> _Function:
    """Exclude ``function`` from torch.compile. The decorator returns ``function`` itself.

    ``torch.compiler.disable`` has the same purpose, but it returns a wrapper and imports
    ``torch._dynamo``, which takes seconds.

    With ``has_callees`` the functions that ``function`` calls are excluded, too.

    Name: ``torch._C._dynamo.eval_frame.set_code_exec_strategy``,
    ``torch._C._dynamo.eval_frame._FrameExecStrategy``,
    ``torch._C._dynamo.eval_frame._FrameAction``, and the attributes ``_torchdynamo_disable`` and
    ``_torchdynamo_disable_msg`` of functions, in 2.11 and later.
    Without it: torch.compile compiles the Python code of impl, which takes seconds and makes
    each call slower.
    """
    # 1. Do not inline the function into a caller's graph.
    function.__dict__.update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_REASON)
    # 2. Do not compile the function by itself.
    _skip_frames(function, has_callees=has_callees)
    return function


def compile_only_inlined(function: _Function) -> _Function:
    """Decorate a function that torch.compile inlines in a compiled caller.

    The function is never compiled without its caller. The functions that it calls may be compiled.

    Name: as for :func:`exclude_from_compilation`, in 2.11 and later.
    Without it: as for :func:`exclude_from_compilation`.
    """
    _skip_frames(function, has_callees=False)
    return function


def _skip_frames(function: Callable[..., Any], *, has_callees: bool) -> None:
    # This code runs when impl is imported. The import must not fail if a name is missing.
    with suppress(AttributeError):
        dynamo = torch._C._dynamo.eval_frame
        action = dynamo._FrameAction
        callees = action.SKIP if has_callees else action.DEFAULT
        strategy = dynamo._FrameExecStrategy(action.SKIP, callees)
        dynamo.set_code_exec_strategy(function.__code__, strategy)
