"""Every private name of PyTorch that impl uses; what is here is reached from nowhere else.

Such a name may go with any release. Each function says which name it stands for, what for, and
what would be lost without it. ``since <= 2.11`` means: it is in 2.11, 2.13 and 2.15, and older
releases, on which impl does not run, were not looked at. But for ``DeviceContext``, a name is
looked up when it is used: one that is gone breaks what needs it, with an error that tells it.

What ``nn.Module`` keeps in its instances (``_parameters``, ``_is_replica``, ...) is not here:
saved models hold it, so it does not change.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import grad_mode
from torch.autograd.graph import get_gradient_edge
from torch.utils._device import DeviceContext

__all__ = [
    "add_lists",
    "add_lists_in_place",
    "allow_changes",
    "compilation_in_place",
    "compilation_of_wrapper",
    "compile_only_inlined",
    "compiled_module",
    "copy_context_of_backward",
    "exclude_from_compilation",
    "flatten",
    "function_mode_count",
    "has_dispatch_modes",
    "has_hooks",
    "has_saved_tensor_hooks",
    "has_transforms",
    "is_compilation_loaded",
    "is_compiled",
    "is_registration_watched",
    "is_torchscript_on",
    "is_wanted_in_backward",
    "next_node_number",
    "run_first_in_backward",
    "sparse_parts",
    "unnumbered_default_device",
    "use_repeated_views",
    "use_unrecorded_views",
    "version_counters",
    "was_made_since",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Why a call is in no graph, for torch.compile to tell.
_REASON = (
    "a graph holds the work of one device; to compile the work of each of several devices, "
    "compile the module itself, as in DataParallel(torch.compile(module))"
)

#: PyTorch numbers the nodes of each thread from 0; of those that are ready the highest runs.
_YOUNGEST = 2**63 - 1


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Join dense tensors into one flat one; a single contiguous tensor is viewed, not copied.

    Name: ``torch._C._nn.flatten_dense_tensors``, since <= 2.11.
    Without it: ``torch.cat`` of flat views, which takes 1.3 to 2.2 times as long for a hundred
    tensors of a few KiB.
    """
    return torch._C._nn.flatten_dense_tensors(list(tensors))


def add_lists(one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
    """Add two lists of tensors of one device, index by index.

    Name: ``torch._foreach_add``, since <= 2.11.
    Without it: a loop of ``torch.add``: the same sums, a call of the device for each.
    """
    return list(torch._foreach_add(one, other))


def add_lists_in_place(totals: list[Tensor], addends: list[Tensor]) -> None:
    """Add to each of ``totals`` the addend with its index.

    Name: ``torch._foreach_add_``, since <= 2.11.
    Without it: as for :func:`add_lists`.
    """
    torch._foreach_add_(totals, addends)


def sparse_parts(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Give the indices and the values of a sparse COO tensor as they are stored.

    Name: ``torch.Tensor._indices`` and ``torch.Tensor._values``, since <= 2.11.
    Without it: ``coalesce()`` before the public ``indices()``, which sorts a copy.
    """
    return tensor._indices(), tensor._values()


def use_repeated_views() -> AbstractContextManager[None]:
    """Let views made in a ``with`` block be made again, when they must be, by the same operation.

    Of a view whose memory has changed autograd makes the node anew, by default by strides.

    Name: ``torch.autograd.grad_mode._force_original_view_tracking``, since <= 2.11.
    Without it: sparse gradients do not reach a parameter that has changed in place.
    """
    context: AbstractContextManager[None] = grad_mode._force_original_view_tracking(True)
    return context


def use_unrecorded_views() -> AbstractContextManager[None]:
    """Make operators in a ``with`` block return plain tensors where they would return views.

    Such a tensor shares memory with its source, and gradients flow through it, but it has a
    version counter of its own and autograd does not know of the memory: changes of one tensor
    in place are not seen by another.

    Name: ``torch._C._ExcludeDispatchKeyGuard`` with the key ``ADInplaceOrView``, since <= 2.11.
    Without it: ``torch.unsafe_split`` where there are no gaps between the tensors, and elsewhere
    ``.data`` of each view, which takes twice as long.
    """
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    guard: AbstractContextManager[None] = torch._C._ExcludeDispatchKeyGuard(keys)
    return guard


def allow_changes(view: Tensor) -> None:
    """Let ``view`` be changed in place even though what it views is one output of several.

    Autograd refuses that for an output of a Function (pytorch/pytorch#37246), and so for what
    views the output.

    Name: ``torch._C._autograd._set_creation_meta``, since <= 2.11.
    Without it: no parameter of the first replica could be changed under ``no_grad``.
    """
    torch._C._autograd._set_creation_meta(view, torch._C._autograd.CreationMeta.DEFAULT)


def run_first_in_backward(node: Any) -> None:
    """Let backward run ``node`` as soon as it is ready, before any other that is.

    Name: ``torch._C._FunctionBase._set_sequence_nr``, since <= 2.11.
    Without it: backward takes the youngest node, so one made before the replicas' own would wait
    for the end of the first replica's backward, with the gradients of all replicas held.
    """
    node._set_sequence_nr(_YOUNGEST)


def function_mode_count() -> int:
    """Count the function modes of this thread, a default device among them.

    Name: ``torch._C._len_torch_function_stack``, since <= 2.11.
    Without it: no public call tells; a replica in the caller's thread could see a mode that the
    others do not.
    """
    return torch._C._len_torch_function_stack()


def unnumbered_default_device() -> torch.device | None:
    """Give this thread's default device, with an index only if the caller wrote one; or None.

    Name: ``torch._C._get_function_stack_at`` and ``torch.utils._device.DeviceContext``,
    since <= 2.11.
    Without it: ``torch.get_default_device()``, which adds the index of the *current* device:
    every replica's new tensors would be on the caller's device.
    """
    if not function_mode_count():
        return None
    bottom = torch._C._get_function_stack_at(0)  # Where torch keeps it, the only one.
    return bottom.device if isinstance(bottom, DeviceContext) else None


def has_dispatch_modes() -> bool:
    """Tell whether this thread has dispatch modes.

    Name: ``torch._C._len_torch_dispatch_stack``, since <= 2.11.
    Without it: as for :func:`function_mode_count`.
    """
    return torch._C._len_torch_dispatch_stack() > 0


def has_saved_tensor_hooks() -> bool:
    """Tell whether this thread has hooks on tensors that are saved for backward.

    Name: ``torch._C._autograd._top_saved_tensors_default_hooks``, since <= 2.11.
    Without it: as for :func:`function_mode_count`.
    """
    # True: those are meant, too, that do nothing while something is traced.
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def has_transforms() -> bool:
    """Tell whether this thread is inside ``vmap``, ``grad`` or another transform of torch.func.

    Name: ``torch._C._functorch.peek_interpreter_stack``, since <= 2.11.
    Without it: as for :func:`function_mode_count`.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_registration_watched() -> bool:
    """Tell whether somebody has asked to see what modules register.

    The asking is public (``register_module_parameter_registration_hook`` and its like).

    Name: ``torch.nn.modules.module._global_module_registration_hooks`` and its like for
    parameters and buffers, since <= 2.11.
    Without it: every module would have to be assigned to, which is several times slower.
    """
    kinds = ("module", "parameter", "buffer")
    return any(getattr(nn.modules.module, f"_global_{kind}_registration_hooks") for kind in kinds)


def is_compilation_loaded() -> bool:
    """Tell whether anything can have been compiled yet.

    Name: ``torch._dynamo.eval_frame``, since <= 2.11.
    Without it: as for :func:`is_compiled`.
    """
    # Importing it takes seconds, and until somebody does there is no such module.
    return "torch._dynamo.eval_frame" in sys.modules


def is_compiled(kind: type[nn.Module]) -> bool:
    """Tell whether ``kind`` is what ``torch.compile`` makes of a module.

    Name: ``torch._dynamo.eval_frame.OptimizedModule``, since <= 2.11.
    Without it: a replica's compiled module would take its parts for the module's own.
    """
    if not is_compilation_loaded():
        return False
    return issubclass(kind, sys.modules["torch._dynamo.eval_frame"].OptimizedModule)


def compiled_module(module: nn.Module) -> nn.Module | None:
    """Give the module that ``torch.compile`` has wrapped in ``module``; None if it has not.

    Name: the attributes ``_torchdynamo_orig_callable`` and ``_orig_mod``, since <= 2.11.
    Without it: a replica would compute with the compiled code, which has the module's weights.
    """
    if "_torchdynamo_orig_callable" not in module.__dict__:
        return None
    return module.get_submodule("_orig_mod")


def compilation_of_wrapper(module: nn.Module) -> Callable[..., Any] | None:
    """Give what compiles a function as ``torch.compile`` did what it has wrapped in ``module``.

    Name: the attribute ``dynamo_ctx`` of ``OptimizedModule``, since <= 2.11.
    Without it: None, and replicas of compiled modules run uncompiled.
    """
    return getattr(module, "dynamo_ctx", None)


def compilation_in_place(module: nn.Module) -> Callable[..., Any] | None:
    """Give what compiles a function as ``module.compile()`` did ``module``.

    Name: ``self`` in the closure of the attribute ``_compiled_call_impl``, since <= 2.11.
    Without it: None, and replicas of such modules run uncompiled.
    """
    call = module.__dict__["_compiled_call_impl"]
    names = getattr(getattr(call, "__code__", None), "co_freevars", ())
    found = dict(zip(names, getattr(call, "__closure__", None) or (), strict=False)).get("self")
    return None if found is None else found.cell_contents


def exclude_from_compilation(function: _Function, *, has_callees: bool = True) -> _Function:
    """Exclude a function from torch.compile: a decorator that returns ``function`` itself.

    ``torch.compiler.disable`` does the same, by a wrapper, and imports ``torch._dynamo``, which
    takes seconds.

    Args:
        function: A function written in Python.
        has_callees: Whether all that it calls is excluded, too.

    Name: ``torch._C._dynamo.eval_frame.set_code_exec_strategy``,
    ``torch._C._dynamo.eval_frame._FrameExecStrategy``,
    ``torch._C._dynamo.eval_frame._FrameAction``, and the attributes ``_torchdynamo_disable`` and
    ``_torchdynamo_disable_msg`` of functions, since <= 2.11.
    Without it: torch.compile compiles the Python code of impl, which takes seconds and makes
    each call slower.
    """
    # 1. No caller's graph takes it in.
    function.__dict__.update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_REASON)
    # 2. A call of it is not compiled either.
    _skip_frames(function, has_callees=has_callees)
    return function


def compile_only_inlined(function: _Function) -> _Function:
    """Have torch.compile compile a function in its callers' graphs only; a decorator.

    Where the caller is not compiled, the function is not either, but what it calls may be.

    Name: as for :func:`exclude_from_compilation`, since <= 2.11.
    Without it: as for :func:`exclude_from_compilation`.
    """
    _skip_frames(function, has_callees=False)
    return function


def _skip_frames(function: Callable[..., Any], *, has_callees: bool) -> None:
    with suppress(AttributeError):  # It is asked at import, which must not fail.
        dynamo = torch._C._dynamo.eval_frame
        action = dynamo._FrameAction
        callees = action.SKIP if has_callees else action.DEFAULT
        strategy = dynamo._FrameExecStrategy(action.SKIP, callees)
        dynamo.set_code_exec_strategy(function.__code__, strategy)


def next_node_number() -> int:
    """Give the number that the next node of the autograd graph made in this thread will have.

    Name: ``torch._C._autograd._get_sequence_nr``, since <= 2.11.
    Without it: the search for compiled nodes would go on to the beginning of the graph.
    """
    return torch._C._autograd._get_sequence_nr()


def was_made_since(number: int, node: Any) -> bool:
    """Tell whether ``node`` has been made since :func:`next_node_number` gave ``number``.

    Those that backward is to run first are not told from older ones.

    Name: ``torch.autograd.graph.Node._sequence_nr``, since <= 2.11.
    Without it: as for :func:`next_node_number`.
    """
    return bool(number <= node._sequence_nr() < _YOUNGEST)


def copy_context_of_backward() -> None:
    """Let the node that backward is about to run have context variables of its own.

    They are a copy of those that the thread which called ``backward`` had.

    Name: ``torch._C._get_obj_in_tls`` and its like, with the key ``"context"``, since <= 2.11.
    Without it: the compiled code of two devices could not run backward at the same time.
    """
    if torch._C._is_key_in_tls("context"):
        torch._C._stash_obj_in_tls("context", torch._C._get_obj_in_tls("context").copy())


def is_torchscript_on() -> bool:
    """Tell whether TorchScript is on; ``PYTORCH_JIT=0`` turns it off.

    Name: ``torch.jit._state._enabled``, since <= 2.11.
    Without it: what was scripted would be refused although nothing is scripted.
    """
    return bool(torch.jit._state._enabled)


def is_wanted_in_backward(leaf: Tensor) -> bool:
    """Tell whether the backward that is going on is to give ``leaf`` its gradient.

    Name: ``torch._C._will_engine_execute_node``, since <= 2.11.
    Without it: ``torch.autograd.grad`` of parameters would give each process its own share of the
    gradients, without a word.
    """
    try:
        return bool(torch._C._will_engine_execute_node(get_gradient_edge(leaf).node))
    except RuntimeError:
        return True  # It refuses to answer for the leaves that `torch.autograd.grad` is given.


def has_hooks(leaf: Tensor) -> bool:
    """Tell whether somebody has registered hooks on the gradient of ``leaf``.

    Name: ``torch.Tensor._backward_hooks`` and ``torch.Tensor._post_accumulate_grad_hooks``,
    since <= 2.11.
    Without it: hooks of parameters that a process does not use would be called with None.
    """
    return bool(leaf._backward_hooks or leaf._post_accumulate_grad_hooks)


def version_counters(tensors: Sequence[Tensor | None]) -> list[object]:
    """Tell for each tensor how often it has changed in place.

    Returns:
        Numbers; for tensors made in inference mode, which are not counted, objects that equal
        nothing else.

    Name: ``torch.Tensor._version``, since <= 2.11.
    Without it: a parameter that changes while replicas are held would not be noticed.
    """
    try:
        return [tensor._version for tensor in tensors]  # type: ignore[union-attr] # None raises
    except (AttributeError, RuntimeError):
        return [
            None if it is None else object() if it.is_inference() else it._version
            for it in tensors
        ]
