"""The code that ``torch.compile`` makes of a module, for the module's replicas.

    module ──► how it was compiled ──► one function a device ──► runs every replica made there

PyTorch keeps compiled code with the function it was made of, beside what must hold for it to fit:
how the modules are built and where their tensors are, not which modules they are. So a function
of its own for each module and device is compiled once, and fits all replicas that follow.
"""

from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from .._compat import (
    compilation_in_place,
    compilation_of_wrapper,
    compiled_module,
    copy_context_of_backward,
    is_compilation_loaded,
    is_compiled,
    next_sequence_nr,
    was_created_since,
)
from .._pytree import InputLeaves

__all__ = ["attach_compiled_code", "has_compiled_code"]

#: A replica has this attribute where it, or a module below it, runs compiled code.
_COMPILED_FLAG = "_has_compiled_code"

#: Compiles a function in the way of some module: with its back end, mode and options.
_Compilation = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Functions:
    """The functions of one compiled module, one for each device.

    Args:
        compilation: How they are compiled.
        body: What they do: call a replica with its arguments.
    """

    def __init__(self, compilation: _Compilation, body: FunctionType) -> None:
        self.compilation = compilation
        self._body = body
        self._by_device: dict[torch.device, Callable[..., Any]] = {}

    def for_device(self, device: torch.device) -> Callable[..., Any]:
        """Give the function for ``device``, the same each time."""
        if device not in self._by_device:
            self._by_device.setdefault(device, self.compilation(_copy_function(self._body)))
        return self._by_device[device]


def _copy_function(body: FunctionType) -> FunctionType:
    """Copy a function, with code of its own: PyTorch keeps what it compiles by the code."""
    return FunctionType(body.__code__.replace(), body.__globals__, body.__name__)


def _call_wrapped(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return module(*args, **kwargs)


def _call_in_place(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # Past `__call__`, which runs compiled code where there is some: this function.
    return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call] # in torch


#: By the module that was compiled. What goes with the module goes with it.
_functions: WeakKeyDictionary[nn.Module, _Functions] = WeakKeyDictionary()


class _CompiledCall:
    """Calls one replica by compiled code.

    Args:
        function: What was compiled.
        replica: Gives the replica, or None once it is gone.
    """

    __slots__ = ("_function", "_replica")

    def __init__(
        self, function: Callable[..., Any], replica: Callable[[], nn.Module | None]
    ) -> None:
        self._function = function
        self._replica = replica

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first = next_sequence_nr()
        output = self._function(self._replica(), args, kwargs)
        _separate_backward_contexts(output, first)
        return output


def has_compiled_code(module: object) -> bool:
    """Tell whether ``module`` is a replica that runs compiled code, itself or below."""
    return _COMPILED_FLAG in getattr(module, "__dict__", ())


def attach_compiled_code(
    modules: Sequence[nn.Module],
    replicas_of: Callable[[nn.Module], Sequence[nn.Module]],
    devices: Sequence[torch.device],
) -> None:
    """Let replicas of compiled modules run compiled code, and mark those that do.

    Args:
        modules: All modules of a tree.
        replicas_of: Gives the replicas of one of them, ready but for this.
        devices: Theirs.
    """
    if not (is_compilation_loaded() and any(map(_may_be_compiled, modules))):
        return
    compiled = []
    for module in modules:
        functions = _functions_of(module)
        if functions is not None:
            compiled.append(module)
            for replica, device in zip(replicas_of(module), devices, strict=True):
                _attach(replica, functions.for_device(device))
    for module in _with_ancestors(compiled, modules):
        for replica in replicas_of(module):
            replica.__dict__[_COMPILED_FLAG] = True


def _with_ancestors(
    members: Iterable[nn.Module], modules: Iterable[nn.Module]
) -> Iterable[nn.Module]:
    """Give ``members`` and those of ``modules`` that have one of them below."""
    parents: dict[nn.Module | None, list[nn.Module]] = {}
    for module in modules:
        for child in module._modules.values():
            parents.setdefault(child, []).append(module)
    found: set[nn.Module] = set()
    pending = [*members]
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            pending += parents.get(module, ())
    return found


def _may_be_compiled(module: nn.Module) -> bool:
    # Of most trees nothing is, and this is asked of every module in every call.
    return "_compiled_call_impl" in module.__dict__ or is_compiled(type(module))


def _functions_of(module: nn.Module) -> _Functions | None:
    body: Any  # mypy takes functions for callables only.
    if compiled_module(module) is not None:
        compilation, body = compilation_of_wrapper(module), _call_wrapped
    elif "_compiled_call_impl" in module.__dict__:
        compilation, body = compilation_in_place(module), _call_in_place
    else:
        return None
    if compilation is None:
        return None
    known = _functions.get(module)
    if known is None or known.compilation is not compilation:
        known = _functions[module] = _Functions(compilation, body)
    return known


def _attach(replica: nn.Module, function: Callable[..., Any]) -> None:
    wrapped = compiled_module(replica)
    if wrapped is None:
        # Not itself: a replica without cycles is freed as soon as nobody uses it.
        replica.__dict__["_compiled_call_impl"] = _CompiledCall(function, ref(replica))
    else:
        replica.__dict__["forward"] = _CompiledCall(function, lambda: wrapped)


def _separate_backward_contexts(output: Any, first: int) -> None:
    """Give each compiled node behind ``output`` context variables of its own in backward.

    Compiled code enters the one copy of the caller's that a backward pass has, and two devices'
    threads cannot be in it at the same time.

    Args:
        output: What compiled code gave.
        first: The number of the first node that may have been made by it.
    """
    leaves = InputLeaves()
    leaves.flatten(output, None, "output")
    pending = [leaf.tensor.grad_fn for leaf in leaves.copied]
    seen = {None}
    while pending:
        node: Any = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if was_created_since(first, node):
            if isinstance(node, BackwardCFunction):
                node.register_prehook(_use_own_context)
            pending += [before for before, _ in node.next_functions]


def _use_own_context(grads: Sequence[Tensor | None]) -> None:
    copy_context_of_backward()
