"""The kinds of perturbations: ways in which the behaviour of a call is made wrong."""

import copy
import inspect
import os
import threading
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from impl_tests.long_checks.perturbations.calls import (
    BoundCall,
    map_tensors,
    modules_in,
    tensors_in,
)

#: The kind that changes no call: `replacement` hides the signature of the function.
OTHER_SIGNATURE = "other-signature"
#: Makes a call in a wrong way. The second argument is the word after a colon, such as the name of
#: an argument; empty if there is none.
_Kind = Callable[[BoundCall, str], Any]
#: Runs the forward of a module.
_Forward = Callable[[], Any]


def perturbed(kind: str, call: BoundCall) -> Any:
    """Make a call with behaviour that is wrong in one way; return the result."""
    name, _, word = kind.partition(":")
    return KINDS[name](call, word)


# Tensors and gradients.


def _values(tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided:
        return tensor * 2
    return ~tensor if tensor.dtype is torch.bool else tensor * 2 + 1


def _on_next_device(tensor: Tensor) -> Tensor:
    device = tensor.device
    if device.type == "cpu":
        return tensor.to(torch.accelerator.current_accelerator())
    return tensor.to(torch.device(device.type, (device.index or 0) ^ 1))


def _other_strides(tensor: Tensor) -> Tensor:
    order = list(range(tensor.dim()))[::-1]
    found = tensor.permute(order).contiguous().permute(order)
    return found if found.stride() != tensor.stride() else tensor.contiguous()


def _late(tensor: Tensor) -> Tensor:
    """Return a copy by a stream that no other stream waits for."""
    if tensor.device.type == "cpu":
        return tensor
    with torch.Stream(tensor.device):
        return tensor.clone()


#: The kinds that change each tensor of a result. ``parameters:NAME`` and ``buffers:NAME`` change
#: each parameter or buffer of the replicas.
_TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "values": _values,
    "dtype": lambda tensor: tensor.to(
        torch.float32 if tensor.dtype is not torch.float32 else torch.float64
    ),
    "on-next-device": _on_next_device,
    "other-strides": _other_strides,
    "plain": lambda tensor: tensor if type(tensor) is Tensor else tensor.as_subclass(Tensor),
    "dense": lambda tensor: tensor if tensor.layout is torch.strided else tensor.to_dense(),
    "flat": lambda tensor: tensor.reshape(-1),
    "cloned": lambda tensor: tensor.clone(memory_format=torch.preserve_format),
    "detached": Tensor.detach,
    "requiring-grad": lambda tensor: tensor.detach().requires_grad_(),
    "late": _late,
}


def _of_tensors(change: Callable[[Tensor], Tensor]) -> _Kind:
    return lambda call, _: map_tensors(change, call.run())


def _clear_gradients(call: BoundCall, _: str) -> Any:
    """Make the gradients that flow through the result zero."""
    result = call.run()
    for tensor in _differentiable(result):
        if tensor.requires_grad:
            tensor.register_hook(_to_zeros)  # type: ignore[no-untyped-call] # in torch
    return result


def _to_zeros(grad: Tensor | None) -> Tensor | None:
    return None if grad is None else grad * 0


def _differentiable(result: Any) -> list[Tensor]:
    found = tensors_in(result)
    for module in modules_in(result):
        for member in module.modules():
            found += member.parameters(recurse=False)
            found += getattr(member, "_former_parameters", {}).values()
            found += [value for value in vars(member).values() if isinstance(value, Tensor)]
    return found


# Results and their containers.


def _change_last_element(result: Any) -> Any:
    """Change the last element of the last tensor."""
    leaves, spec = pytree.tree_flatten(result)
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.numel()]
    leaf = leaves[places[-1]]
    leaves[places[-1]] = changed = _values(leaf)
    if leaf.layout is torch.strided:
        mask = torch.zeros(leaf.shape, dtype=torch.bool, device=leaf.device)
        mask.view(-1)[-1] = True
        leaves[places[-1]] = torch.where(mask, changed, leaf)
    return pytree.tree_unflatten(leaves, spec)


def _share_memory(result: Any) -> Any:
    """Return tensors of equal shape, dtype and device that share memory with the first of them."""
    firsts: dict[Any, Tensor] = {}

    def share(tensor: Tensor) -> Tensor:
        key = tensor.shape, tensor.dtype, tensor.device
        return firsts.setdefault(key, tensor).view_as(tensor)

    return map_tensors(share, result)


def _other_container(result: Any) -> Any:
    """Return a tuple in place of a list, a list in place of a tuple, or another mapping."""
    if isinstance(result, tuple):
        return list(result)
    if isinstance(result, list):
        return tuple(result)
    return OrderedDict(result) if type(result) is dict else dict(result)


#: The kinds that change a result. A result that a kind cannot change is returned.
_RESULTS: dict[str, Callable[[Any], Any]] = {
    "last-element": _change_last_element,
    "shared-memory": _share_memory,
    "other-container": _other_container,
    "other-member-containers": lambda result: type(result)([*map(_other_container, result)]),
    "members-missing": lambda result: type(result)([member[:-1] for member in result]),
    "rotated": lambda result: type(result)([result[-1], *result[:-1]]),
    "deepcopied": copy.deepcopy,
}


def _of_result(change: Callable[[Any], Any]) -> _Kind:
    def run(call: BoundCall, _: str) -> Any:
        result = call.run()
        try:
            return change(result)
        except Exception:  # this result cannot be changed in this way
            return result

    return run


# Replicas.


def _of_modules(change: Callable[[nn.Module, str], object]) -> _Kind:
    """Return a kind that changes each module and submodule of the result."""

    def run(call: BoundCall, word: str) -> Any:
        result = call.run()
        for replica in modules_in(result):
            for member in list(replica.modules()):
                with suppress(Exception):  # such as a script module
                    change(member, word)
        return result

    return run


def _switch(module: nn.Module, _: str) -> None:
    module.training = not module.training


def _remove_hooks(module: nn.Module, _: str) -> None:
    for name, value in vars(module).items():
        if name.endswith("_hooks"):
            value.clear()


def _copy_children(module: nn.Module, _: str) -> None:
    """Copy the submodules and reverse their order; leave out members that are None."""
    children = [(name, copy.copy(child)) for name, child in module._modules.items() if child]
    module._modules.clear()
    module._modules.update(reversed(children))
    for members in (module._parameters, module._buffers):
        for name in [name for name, value in members.items() if value is None]:
            del members[name]


def _change_tensors(owners: list[dict[str, Any]], kind: str) -> None:
    for owner in owners:
        for key in [key for key, value in owner.items() if isinstance(value, Tensor)]:
            owner[key] = _TENSORS[kind](owner[key])


#: The kinds that change each module and submodule of a result.
_REPLICAS: dict[str, Callable[[nn.Module, str], None]] = {
    "replicas-switched": _switch,
    "replicas-without-hooks": _remove_hooks,
    "replicas-with-other-children": _copy_children,
    "parameters": lambda module, kind: _change_tensors([module._parameters, vars(module)], kind),
    "buffers": lambda module, kind: _change_tensors([module._buffers], kind),
}


def _share_entries(call: BoundCall, _: str) -> Any:
    """Share the hooks, the buffers and the attributes of the given modules."""
    result = call.run()
    sources = [member for module in call.modules() for member in module.modules()]
    for replica in modules_in(result):
        for member, source in zip(list(replica.modules()), sources, strict=False):
            for name, value in vars(source).items():
                if name not in ("_modules", "_parameters"):
                    vars(member)[name] = value
            for name in getattr(type(source), "__slots__", ()):
                setattr(member, name, getattr(source, name))
    return result


def _add_lock(call: BoundCall, _: str) -> Any:
    """Add a lock, which cannot be copied or pickled, to the replicas or to the wrapper."""
    result = call.run()
    for module in [*modules_in(result), *modules_in(call.arguments.get("self"))]:
        vars(module)["perturbed"] = threading.Lock()
    return result


def _add_members(call: BoundCall, _: str) -> Any:
    """Add a child to the wrapper, and the parameters of its module as attributes."""
    result, wrapper = call.run(), call.arguments["self"]
    vars(wrapper).update(wrapper.module.named_parameters(recurse=False))
    wrapper.add_module("perturbed", nn.Linear(1, 1))
    return result


# The given modules, and the way in which they run.

#: Each pool has a thread that stays.
_POOLS = [ThreadPoolExecutor(1)]


def _on_another_device(forward: _Forward) -> Any:
    with torch.accelerator.device_index(torch.accelerator.current_device_index() ^ 1):
        return forward()


def _in_a_new_thread(forward: _Forward) -> Any:
    """Run the module in a new thread, which stays."""
    pool = ThreadPoolExecutor(1)
    _POOLS.append(pool)
    return pool.submit(forward).result()


def _in_one_thread(forward: _Forward) -> Any:
    """Run the module in a thread that stays and that all modules of all calls share."""
    running = _POOLS[-1].submit(forward)
    try:
        return running.result(timeout=2)
    except TimeoutError:
        # The thread waits for a module that cannot run. Later calls need another one.
        _POOLS.append(ThreadPoolExecutor(1))
        raise


#: The kinds that run the forward of each given module in another way.
_FORWARDS: dict[str, Callable[[_Forward], Any]] = {
    "modules-on-another-device": _on_another_device,
    "modules-in-new-threads": _in_a_new_thread,
    "modules-in-one-thread": _in_one_thread,
}


def _of_forward(run_module: Callable[[_Forward], Any]) -> _Kind:
    def replacement(forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: run_module(lambda: forward(*args, **kwargs))

    def run(call: BoundCall, _: str) -> Any:
        with ExitStack() as stack:
            for module in {id(module): module for module in call.modules()}.values():
                forward = replacement(module.forward)
                stack.enter_context(mock.patch.object(module, "forward", forward))
            return call.run()

    return run


def _call_own_method(call: BoundCall, step: str) -> Any:
    """Use a method of DataParallel in place of an overriding one."""
    wrapper, name = call.arguments["self"], step.replace("-", "_")
    base = next(kind for kind in type(wrapper).__mro__ if kind.__name__ == "DataParallel")
    with mock.patch.object(wrapper, name, types.MethodType(getattr(base, name), wrapper)):
        return call.run()


def _replace_given_parameters(call: BoundCall, _: str) -> Any:
    """Replace the parameters of the given modules after the call, with gradients of zeros."""
    modules = call.modules()
    try:
        return call.run()
    finally:
        for member in (member for module in modules for member in module.modules()):
            for name, parameter in member._parameters.items():
                if parameter is not None:
                    found = nn.Parameter(parameter.detach().clone())
                    found.grad = torch.zeros_like(found)
                    member._parameters[name] = found


# Errors.

#: Exceptions that are no `Exception`.
_INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def _accept(call: BoundCall, error: BaseException) -> Any:
    """Return an argument in place of raising an error; a constructor returns None."""
    if getattr(call.function, "__name__", "") == "__init__":
        return None
    return next((value for value in call.arguments.values() if value is not None), None)


def _raise_other_text(call: BoundCall, error: BaseException) -> NoReturn:
    """Raise an error of the same class with another text, without a cause."""
    try:
        found = type(error)("perturbed")
        if str(found) == str(error):
            raise TypeError
    except Exception:  # the class has another signature, or ignores the text
        found = error
        found.args = ("perturbed",)
    raise found.with_traceback(error.__traceback__)


def _raise_other_class(call: BoundCall, error: BaseException) -> NoReturn:
    raise ArithmeticError(str(error)).with_traceback(error.__traceback__) from error.__cause__


#: The kinds that change an error of the call.
_ERRORS: dict[str, Callable[[BoundCall, Any], Any]] = {
    "accepted": _accept,
    "other-text": _raise_other_text,
    "other-class": _raise_other_class,
}


def _of_error(change: Callable[[BoundCall, Any], Any]) -> _Kind:
    def run(call: BoundCall, _: str) -> Any:
        try:
            return call.run()
        except (Exception, *_INTERRUPTS) as error:
            return change(call, error)

    return run


def _refuse(call: BoundCall, _: str) -> NoReturn:
    raise RuntimeError("perturbed")


# Arguments, and the state around a call.

#: Keeps references to arguments.
_KEPT: list[Any] = []


def _ignore(call: BoundCall, name: str) -> Any:
    """Make the call with the default of the argument; with None if it has none."""
    default = call.bound.signature.parameters[name].default
    value = None if default is inspect.Parameter.empty else default
    return call.with_arguments(**{name: value}).run()


def _of_argument(change: Callable[[Any], Any]) -> _Kind:
    """Return a kind that changes one argument. An argument that cannot be changed is passed."""

    def run(call: BoundCall, name: str) -> Any:
        try:
            changed = call.with_arguments(**{name: change(call.arguments[name])})
        except Exception:  # this argument is missing, or cannot be changed in this way
            changed = call
        return changed.run()

    return run


def _write_arguments(call: BoundCall, _: str) -> Any:
    """Change the values of the arguments after the call, but not of expanded tensors."""
    result = call.run()
    with torch.no_grad():
        for tensor in call.tensors():
            if tensor.layout is not torch.strided or 0 not in tensor.stride():
                tensor.detach().copy_(_values(tensor))
    return result


def _keep_arguments(call: BoundCall, _: str) -> Any:
    _KEPT.append(dict(call.arguments))
    return call.run()


def _return_arguments(call: BoundCall, _: str) -> Any:
    """Return arguments in place of tensors like them, and the module as the first replica."""
    result, modules, tensors = call.run(), call.modules(), call.tensors()
    if modules and isinstance(result, list):
        return [modules[0], *result[1:]]

    def own(tensor: Tensor) -> Tensor:
        alike = (t for t in tensors if (t.shape, t.device) == (tensor.shape, tensor.device))
        return next(alike, tensor)

    return map_tensors(own, result)


def _return_first_result(call: BoundCall, _: str) -> Any:
    """Return the result of the first call in the test with the same function again."""
    cache: dict[str, Any] = getattr(call.function, "__dict__", {})
    test = os.environ["PYTEST_CURRENT_TEST"]
    if cache.get("_test") != test:
        cache.update(_test=test, _first_result=call.run())
    return cache["_first_result"]


def _add_warning(call: BoundCall, _: str) -> Any:
    result = call.run()
    warnings.warn("perturbed", UserWarning, stacklevel=2)
    return result


def _drop_warnings(call: BoundCall, _: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call.run()


def _leave(call: BoundCall, changed: str) -> Any:
    """Change the device or the stream of the thread after the call. The suite restores them."""
    try:
        return call.run()
    finally:
        if changed == "device":
            torch.accelerator.set_device_index(torch.accelerator.current_device_index() ^ 1)
        else:
            torch.accelerator.set_stream(torch.Stream(torch.accelerator.current_stream().device))


#: The kinds by name.
KINDS: dict[str, _Kind] = {
    **{name: _of_tensors(change) for name, change in _TENSORS.items()},
    "gradient-zero": _clear_gradients,
    **{name: _of_result(change) for name, change in _RESULTS.items()},
    **{name: _of_modules(change) for name, change in _REPLICAS.items()},
    "replicas-sharing-entries": _share_entries,
    "not-copyable": _add_lock,
    "wrapper-with-members": _add_members,
    **{name: _of_forward(run_module) for name, run_module in _FORWARDS.items()},
    "own": _call_own_method,
    "given-modules-changed": _replace_given_parameters,
    **{name: _of_error(change) for name, change in _ERRORS.items()},
    "refused": _refuse,
    "ignored": _ignore,
    "reversed": _of_argument(lambda value: value[::-1]),
    "shortened": _of_argument(lambda value: value[:-1]),
    "arguments-written": _write_arguments,
    "arguments-kept": _keep_arguments,
    "arguments-returned": _return_arguments,
    "first-result-again": _return_first_result,
    "warning-added": _add_warning,
    "warnings-dropped": _drop_warnings,
    "leaves": _leave,
    OTHER_SIGNATURE: lambda call, _: call.run(),
}
