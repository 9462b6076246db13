"""The private names, and a text, of PyTorch that impl uses, except for members of ``nn.Module``.

A private name may disappear in any release. A comment "Without it" names the consequence for impl.
All supported releases, from 2.11 on, have all names. Names other than those that this module
imports are looked up when they are used, so a missing name breaks only the features that need it.
The error contains the name.

Any module of impl may use the private members of ``nn.Module`` (``_parameters``,
``_replicate_for_data_parallel``, ...): saved models and other packages use them, so they do not
change.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import _has_any_global_hook, _WrappedHook
from torch.utils import _pytree
from torch.utils._device import DeviceContext
from torch.utils.hooks import RemovableHandle

from ._settings import call_with_setting

_Result = TypeVar("_Result")

#: The base class of ``nn.BatchNorm1d``, ``nn.BatchNorm2d`` and ``nn.BatchNorm3d``.
#: Without it: ``nn.BatchNorm2d``, which checks that inputs have four dimensions.
BatchNorm = _BatchNorm

#: The class of hooks of ``load_state_dict``, which refer to their module. No forward calls them.
#: Without it: replicas on one device, such as the CPU, cause a warning about such a hook.
StateDictHook = _WrappedHook

#: The attribute that marks a tensor of a subclass as a Parameter.
#: Without it: the copies of a Parameter of a subclass would be Parameters that are no leaves.
PARAMETER_MARK = "_is_param"

#: The largest sequence number. PyTorch numbers the autograd nodes of each thread from 0, and
#: backward runs the ready node with the largest number first.
_MAX_SEQUENCE_NR = 2**63 - 1


def library_path() -> str:
    """Return the path of PyTorch's library. Through it the libraries that it needs are found."""
    # Without it: replicas on the CPU do not share intra-op threads in a PyTorch with MKL.
    path: str = torch._C.__file__
    return path


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate dense tensors into a flat tensor. For one contiguous tensor, return a view."""
    # Without it: ``torch.cat`` of flat views, which takes 1.3 to 2.2 times as long for a hundred
    # tensors of a few KiB.
    #
    # Autocast to bfloat16 refuses to concatenate float16, and autocast to float16 bfloat16.
    with torch._C._DisableAutocast():
        return torch._C._nn.flatten_dense_tensors(list(tensors))


def add_lists(lists: Sequence[list[Tensor]]) -> list[Tensor]:
    """Return the sums of two or more lists of tensors on one device, index by index."""
    # Without it: a loop of ``torch.add``, with one kernel for each sum.
    totals = list(torch._foreach_add(lists[0], lists[1]))
    for other in lists[2:]:
        torch._foreach_add_(totals, other)
    return totals


def sparse_parts(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the stored indices and values of a sparse COO tensor, even if it is not coalesced."""
    # Without it: ``coalesce()``, which sorts a copy, before the public ``indices()``.
    return tensor._indices(), tensor._values()


def track_original_views(function: Callable[[], _Result]) -> _Result:
    """Return ``function()``. Each view that it creates remembers the operation that created it.

    After an in-place change of the memory of a view, autograd replaces the view's node. The new
    node then repeats this operation. By default, the new node is a strided view.
    """
    # Without it: sparse gradients do not reach a parameter that was changed in place.
    before = torch._C._is_view_replay_enabled()
    return call_with_setting(torch._C._set_view_replay_enabled, True, before, function)


def call_with_inference_mode(enabled: bool, function: Callable[[], _Result]) -> _Result:
    """Return ``function()``, called in or outside of inference mode. Grad mode must be off."""
    # Without it: ``torch.inference_mode(enabled)``. After an interrupt, inference mode could stay
    # changed and grad mode could change.
    if torch.is_inference_mode_enabled() == enabled:
        return function()
    guard = torch._C._InferenceMode(enabled)
    try:
        guard.__enter__()  # type: ignore[no-untyped-call] # It sets grad mode, too.
        torch.set_grad_enabled(False)
        return function()
    finally:
        guard.__exit__(None, None, None)


def use_plain_operators() -> AbstractContextManager[None]:
    """Return a context manager in which operators treat subclasses of Tensor as plain tensors.

    Classes that define ``__torch_dispatch__`` keep their operators.
    """
    # Without it: ``as_subclass(Tensor)`` for each tensor, which the class may refuse.
    guard: AbstractContextManager[None] = torch._C.DisableTorchFunctionSubclass()
    return guard


def use_unrecorded_views() -> AbstractContextManager[None]:
    """Return a context manager in which operators return plain tensors instead of views.

    A returned tensor shares memory with its source, and gradients flow back to the source. But the
    tensor has its own version counter, and autograd does not record the shared memory: an in-place
    change of the tensor does not count as a change of the source.
    """
    # Without it: ``torch.unsafe_split`` if there are no gaps between the tensors, else ``.data``
    # of each view, which takes twice as long.
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    guard: AbstractContextManager[None] = torch._C._ExcludeDispatchKeyGuard(keys)
    return guard


def base_of_view(view: Tensor) -> Tensor | None:
    """Return the tensor of which ``view`` is a view, or None."""
    # Without it: an input that a replica changes by a parameter would not get the change's
    # history.
    return view._base


def allow_inplace_changes(view: Tensor) -> None:
    """Allow in-place changes of ``view``, a view of an output of a Function.

    If a Function has several outputs, autograd forbids in-place changes of the outputs and of
    their views (pytorch/pytorch#37246).
    """
    # Without it: a forward could not change parameters of the first replica under ``no_grad``.
    torch._C._autograd._set_creation_meta(view, torch._C._autograd.CreationMeta.DEFAULT)


def run_first_in_backward(node: Any) -> None:
    """Make ``node`` run before all other nodes that are ready in a backward."""
    # Without it: backward runs the newest node first. A node that is older than the replicas'
    # nodes would wait for the backward of the first replica, and keep the gradients of all
    # replicas.
    node._set_sequence_nr(_MAX_SEQUENCE_NR)


def call_after_backward(function: Callable[[], None]) -> None:
    """Call ``function`` when the running backward has run all its nodes.

    Functions are called in the order in which they were passed. If a function raises an error,
    the backward raises it.
    """
    # Without it: if a rank ends during backward, the errors of the other ranks name no rank.
    torch.autograd.Variable._execution_engine.queue_callback(function)


def unnumbered_default_device() -> torch.device | None:
    """Return this thread's default device, with an index only if the caller gave one, or None."""
    # Without it: ``torch.get_default_device()``, which adds the index of the *current* device: new
    # tensors of every replica would be on the caller's device.
    if not torch._C._len_torch_function_stack():
        return None
    # A default device is always the bottom entry of the stack of function modes.
    bottom = torch._C._get_function_stack_at(0)
    return bottom.device if isinstance(bottom, DeviceContext) else None


def current_device_readers(runtime: Any) -> tuple[Callable[[int], Any], Callable[[], int]]:
    """Return ``runtime.current_stream``, for an index, and ``runtime.current_device_index``."""
    # Without it: the functions of ``torch.accelerator``, which call functions of Python. A worker
    # reads each stream after each replica.
    if runtime is torch.accelerator:
        return torch._C._accelerator_getStream, torch._C._accelerator_getDeviceIndex
    return runtime.current_stream, runtime.current_device_index


def has_changed_operators() -> bool:
    """Return whether modes, transforms or hooks on saved tensors change this thread's operators.

    A default device is a mode.
    """
    # Without it: a worker in which a replica has left a mode active could be reused.
    #
    # A worker calls this function after each replica, so it calls no other function of Python.
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_function_stack() > 0
        or not torch._C._is_torch_function_enabled()
        # The argument True includes hooks that are disabled during tracing.
        or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    )


def is_any_autocast_on() -> bool:
    """Return whether autocast of any device type is on in this thread."""
    # Without it: ``torch.is_autocast_enabled`` for each type of device.
    return torch._C._is_any_autocast_enabled()


def has_modes_or_transforms() -> bool:
    """Return whether this thread has dispatch modes or torch.func transforms."""
    # Without it: copies that a mode or transform has made could be kept after its end.
    return torch._C._len_torch_dispatch_stack() > 0 or has_transforms()


def is_refused_by_transform(error: RuntimeError) -> bool:
    """Return whether a transform of torch.func has refused an autograd Function of impl."""
    # Without it: the error has no note that says what to do.
    #
    # PyTorch raises a RuntimeError, so only the text shows the cause. It was read on PyTorch 2.13.
    return "the setup_context staticmethod" in str(error)


def has_dual_level() -> bool:
    """Return whether a level of forward-mode AD is open, in which tensors may have tangents."""
    # Without it: ``torch.autograd.forward_ad.unpack_dual`` of each input and parameter, which
    # takes longer than the other checks of a call.
    return torch.autograd.forward_ad._current_level >= 0


def has_registration_hooks() -> bool:
    """Return whether hooks exist that run when any module registers a member."""
    # Without it: all replicas would need attribute assignment, which is several times slower.
    kinds = ("module", "parameter", "buffer")
    return any(getattr(nn.modules.module, f"_global_{kind}_registration_hooks") for kind in kinds)


def begin_profiler_span(name: str) -> object:
    """Begin the block of a ``record_function``. Pass the result to :func:`end_profiler_span`."""
    # Without it: ``record_function``, which takes a tenth of a held forward.
    return torch._C._autograd._record_function_with_args_enter(name)


def end_profiler_span(span: Any) -> None:
    torch._C._autograd._record_function_with_args_exit(span)


def next_sequence_nr() -> int:
    """Return the sequence number of the next autograd node that this thread creates."""
    # Without it: the search for compiled nodes would reach the beginning of the graph.
    return torch._C._autograd._get_sequence_nr()


def was_created_since(sequence_nr: int, node: Any) -> bool:
    """Return whether ``node`` was created since; False for those of `run_first_in_backward`."""
    return bool(sequence_nr <= node._sequence_nr() < _MAX_SEQUENCE_NR)


def copy_context_of_backward() -> None:
    """Copy the context variables that the running backward pass has inherited from its caller.

    The node that runs next in this thread then uses the copy.
    """
    # Without it: compiled code of two devices could not run backward concurrently.
    if torch._C._is_key_in_tls("context"):
        torch._C._stash_obj_in_tls("context", torch._C._get_obj_in_tls("context").copy())


def is_traced() -> bool:
    """Return whether torch.jit.trace records this call."""
    # Without it: ``torch.jit.is_tracing()``, which calls two more functions of Python.
    return torch._C._is_tracing()


def is_torchscript_enabled() -> bool:
    """Return whether TorchScript is enabled. ``PYTORCH_JIT=0`` disables it."""
    # Without it: modules would be rejected as scripted although TorchScript is disabled.
    return bool(torch.jit._state._enabled)


def is_needed_in_backward(leaf: Tensor) -> bool:
    """Return whether the running backward computes the gradient of ``leaf``."""
    # Without it: ``torch.autograd.grad`` of parameters would silently return the gradients of this
    # process's rows only.
    try:
        return bool(torch._C._will_engine_execute_node(get_gradient_edge(leaf).node))
    except RuntimeError:
        # `_will_engine_execute_node` raises an error for a leaf in `inputs` of
        # `torch.autograd.grad`. The gradient of such a leaf is needed.
        return True


def has_accumulate_hooks(leaf: Tensor) -> bool:
    """Return whether ``leaf`` has hooks that run when its gradient has been accumulated."""
    # Without it: optimizers that step in such a hook would make the ranks' parameters differ.
    return bool(leaf._post_accumulate_grad_hooks)


def have_hooks_or_history(tensors: Sequence[Tensor]) -> list[bool]:
    """Return for each tensor whether hooks, or operators that made it, receive its gradient."""
    # Without it: hooks of unused parameters would be called with None, and Functions before unused
    # tensors with zeros.
    return [
        bool(each._backward_hooks or each._post_accumulate_grad_hooks or not each.is_leaf)
        for each in tensors
    ]


def module_has_hooks(module: nn.Module) -> bool:
    """Return whether a call of ``module`` calls hooks of ``module``, or of all modules."""
    # Without it: hooks of cross entropy would get losses of targets in place of their mean.
    return bool(
        module._forward_pre_hooks
        or module._forward_hooks
        or module._backward_pre_hooks
        or module._backward_hooks
        or _has_any_global_hook()  # type: ignore[no-untyped-call] # in torch
    )


def pytree_node(kind: type) -> Any:
    """Return the functions that flatten and unflatten objects of the class ``kind``, or None.

    ``flatten_fn(value)`` returns the parts of an object, and a context. ``unflatten_fn(parts,
    context)`` returns an object with other parts.
    """
    # Without it: ``tree_flatten`` of the same module with an ``is_leaf`` that stops at the parts.
    return _pytree.SUPPORTED_NODES.get(kind)


_VERSION = attrgetter("_version")


def hook_count() -> int:
    """Return a number that grows when a hook is registered, on any object.

    A hook that is written into a dictionary of hooks, without a handle, does not count.
    """
    # Without it: each forward would compare a dozen empty dictionaries of every module, which
    # takes most of the time of looking for changes.
    return RemovableHandle.next_id


def hook_dicts(module: nn.Module) -> list[dict[Any, Any]]:
    """Return the dictionaries of hooks of ``module``."""
    return [value for name, value in vars(module).items() if name in _HOOK_DICTS]


_HOOK_DICTS = {name for name in vars(nn.Module()) if "_hooks" in name}


def version_counters(tensors: Sequence[Tensor | None]) -> list[object]:
    """Return the version counter of each tensor; of an inference tensor, a unique object."""
    # Without it: changes of parameters would not be detected while replicas are kept.
    try:
        return [*map(_VERSION, tensors)]
    except (AttributeError, RuntimeError):
        return [
            None if tensor is None else object() if tensor.is_inference() else tensor._version
            for tensor in tensors
        ]


# The private names of torch.compile.


_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The reason that torch.compile prints if it leaves a call of impl out of its graphs.
_REASON = (
    "a graph holds the work of one device; to compile the work of each of several devices, "
    "compile the module itself, as in DataParallel(torch.compile(module))"
)


def is_compilation_loaded() -> bool:
    """Return whether ``torch.compile`` has been loaded, so that compiled modules may exist."""
    # Do not import the module, which takes seconds. Before its import no module is compiled. While
    # another thread imports it, the module lacks the class.
    return hasattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule")


def is_compiled(module_class: type[nn.Module]) -> bool:
    """Return whether ``module_class`` is the class of modules that ``torch.compile`` returns."""
    # Without it: a replica of a compiled module would assign its members to the original module.
    if not is_compilation_loaded():
        return False
    return issubclass(module_class, sys.modules["torch._dynamo.eval_frame"].OptimizedModule)


def compiled_module(module: nn.Module) -> nn.Module | None:
    """Return the original module if ``module`` is a wrapper from ``torch.compile``, else None."""
    # Without it: a replica would run the compiled code of the module, with the module's weights.
    if "_torchdynamo_orig_callable" not in module.__dict__:
        return None
    return module.get_submodule("_orig_mod")


def compiled_function(function: Any) -> Any:
    """Return the original function if ``function`` is one from ``torch.compile``, else None."""
    # Without it: means of a compiled `functional.cross_entropy` would be weighted by rows.
    #
    # A function of another module with this attribute may do more than the wrapped one.
    module: str = getattr(function, "__globals__", {}).get("__name__", "")
    return function.__dict__.get("__wrapped__") if module.startswith("torch._dynamo.") else None


def compiler_of_wrapper(module: nn.Module) -> Callable[..., Any] | None:
    """Return a function that compiles with the options that ``torch.compile`` got for ``module``.

    ``module`` is a wrapper from ``torch.compile``.
    """
    # Without it: None, and replicas of compiled modules run uncompiled.
    return getattr(module, "dynamo_ctx", None)


def compiler_of_module(module: nn.Module) -> Callable[..., Any] | None:
    """Return a function that compiles with the options of the call ``module.compile()``."""
    # Without it: None, and replicas of such modules run uncompiled.
    call = module.__dict__["_compiled_call_impl"]
    names = getattr(getattr(call, "__code__", None), "co_freevars", ())
    cell = dict(zip(names, getattr(call, "__closure__", None) or (), strict=False)).get("self")
    return None if cell is None else cell.cell_contents


def exclude_from_compilation(function: _Function, *, has_callees: bool = True) -> _Function:
    """Exclude ``function`` from torch.compile. The decorator returns ``function`` itself.

    ``torch.compiler.disable`` has the same purpose, but it returns a wrapper and imports
    ``torch._dynamo``, which takes seconds.

    With ``has_callees`` the functions that ``function`` calls are excluded, too.
    """
    # Without it: torch.compile compiles the Python code of impl, which takes seconds and makes
    # each call slower.
    #
    # 1. Do not inline the function into a caller's graph.
    function.__dict__.update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_REASON)
    # 2. Do not compile the function by itself.
    _skip_frames(function, has_callees=has_callees)
    return function


def compile_only_inlined(function: _Function) -> _Function:
    """Decorate a function that torch.compile inlines in a compiled caller.

    The function is never compiled without its caller. The functions that it calls may be compiled.
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


@compile_only_inlined
def has_transforms() -> bool:
    """Return whether this thread has torch.func transforms."""
    # Without it: transforms refuse a wrapper with one device.
    return torch._C._functorch.peek_interpreter_stack() is not None
