"""Compiled code for the replicas of modules that ``torch.compile`` has compiled.

    compiled module ──► one compiled function per device ──► runs all replicas on that device

PyTorch caches compiled code with the compiled function. The guards of the code check the
structure of the modules and the devices of the tensors, but not the identity of the modules. The
function for one module and one device is therefore compiled once, and runs all later replicas on
this device.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction

from ._inputs import find_tensors
from ._torch_private import (
    compiled_module,
    compiler_of_module,
    compiler_of_wrapper,
    copy_context_of_backward,
    is_compilation_loaded,
    is_compiled,
    module_has_hooks,
    next_sequence_nr,
    was_created_since,
)

#: The attribute of replicas that run compiled code, or have submodules that do.
_COMPILED_FLAG = "_has_compiled_code"

#: Whether the compiled code of all devices enters one context in backward. Since PyTorch 2.14 it
#: enters a copy (pytorch/pytorch#186659).
_SHARES_CONTEXT = torch.__version__ < "2.14"

#: ``torch.compile`` with the back end, mode and options of one module.
_Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


class _CompiledFunctions:
    """The compiled functions of one module, for each device with and without hooks.

    They are copies of ``body``.
    """

    def __init__(self, compiler: _Compiler, body: FunctionType) -> None:
        self.compiler = compiler
        self._body = body
        self._functions: dict[tuple[torch.device, bool], Callable[..., Any]] = {}

    def find(self, device: torch.device, module: nn.Module) -> Callable[..., Any]:
        """Return the function for ``device`` and the hooks of ``module``, the same each time."""
        # `module.compile()` compiles the calls of hooks, but compiled code of a module that is an
        # argument does not look for new ones.
        key = device, self._body is _call_in_place and module_has_hooks(module)
        if key not in self._functions:
            # PyTorch caches compiled code by the code object, so each key gets a code object.
            code = self._body.__code__.replace()
            body = FunctionType(code, self._body.__globals__, self._body.__name__)
            self._functions.setdefault(key, self.compiler(body))
        return self._functions[key]


def _call_wrapped(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return module(*args, **kwargs)


def _call_in_place(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # Do not use `__call__`, because it would call this function again.
    return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call] # in torch


#: For each compiled module: its compiled functions.
_functions: WeakKeyDictionary[nn.Module, _CompiledFunctions] = WeakKeyDictionary()


@dataclass(slots=True, eq=False)
class _CompiledCall:
    """A callable that runs one replica with compiled code."""

    function: Callable[..., Any]
    replica: Callable[[], nn.Module | None]  # Returns None if the replica has been freed.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first = next_sequence_nr()
        output = self.function(self.replica(), args, kwargs)
        if _SHARES_CONTEXT:
            _separate_backward_contexts(output, first)
        return output


def has_compiled_code(module: object) -> bool:
    """Return whether a replica, or the replica of a method, runs compiled code in any module."""
    replica = module.__self__ if isinstance(module, MethodType) else module
    return _COMPILED_FLAG in getattr(replica, "__dict__", ())


def attach_compiled_code(
    modules: Sequence[nn.Module],
    replicas_of: Callable[[nn.Module], Sequence[nn.Module]],
    devices: Sequence[torch.device],
) -> None:
    """Attach compiled code to replicas, and mark them and the replicas that contain them."""
    if not (is_compilation_loaded() and any(map(_may_be_compiled, modules))):
        return
    compiled = []
    for module in modules:
        functions = _find_compiled_functions(module)
        if functions is not None:
            compiled.append(module)
            for replica, device in zip(replicas_of(module), devices, strict=True):
                _attach_to_replica(replica, functions.find(device, module))
    for module in _with_ancestors(compiled, modules):
        for replica in replicas_of(module):
            replica.__dict__[_COMPILED_FLAG] = True


def _with_ancestors(
    descendants: Iterable[nn.Module], modules: Iterable[nn.Module]
) -> Iterable[nn.Module]:
    """Return ``descendants``, and all of ``modules`` that contain one of them."""
    parents: dict[nn.Module | None, list[nn.Module]] = {}
    for module in modules:
        for child in module._modules.values():
            parents.setdefault(child, []).append(module)
    reached: set[nn.Module] = set()
    pending = [*descendants]
    while pending:
        module = pending.pop()
        if module not in reached:
            reached.add(module)
            pending += parents.get(module, ())
    return reached


def _may_be_compiled(module: nn.Module) -> bool:
    # This check must be cheap: it runs for every module in every call.
    return "_compiled_call_impl" in module.__dict__ or is_compiled(type(module))


def _find_compiled_functions(module: nn.Module) -> _CompiledFunctions | None:
    """Return the functions of ``module``; None if it is not compiled or has no known compiler."""
    body: Any  # mypy infers Callable, not FunctionType.
    if compiled_module(module) is not None:
        compiler, body = compiler_of_wrapper(module), _call_wrapped
    elif "_compiled_call_impl" in module.__dict__:
        compiler, body = compiler_of_module(module), _call_in_place
    else:
        return None
    if compiler is None:
        return None
    known = _functions.get(module)
    if known is None or known.compiler is not compiler:
        known = _functions[module] = _CompiledFunctions(compiler, body)
    return known


def _attach_to_replica(replica: nn.Module, function: Callable[..., Any]) -> None:
    wrapped = compiled_module(replica)
    if wrapped is None:
        # A weak reference avoids a reference cycle, so the replica is freed without the garbage
        # collector.
        replica.__dict__["_compiled_call_impl"] = _CompiledCall(function, ref(replica))
    else:
        replica.__dict__["forward"] = _CompiledCall(function, lambda: wrapped)


def _separate_backward_contexts(output: Any, first: int) -> None:
    """Register a hook that gives each compiled node a copy of the context variables in backward.

    Two threads cannot enter one context at the same time, as compiled code of two devices would
    before PyTorch 2.14. The nodes of ``output`` have sequence numbers from ``first``.
    """
    pending = [tensor.grad_fn for tensor in find_tensors(output, "output")]
    seen = {None}
    while pending:
        node: Any = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if was_created_since(first, node):
            if isinstance(node, BackwardCFunction):
                node.register_prehook(lambda _: copy_context_of_backward())
            pending += [next_node for next_node, _ in node.next_functions]
