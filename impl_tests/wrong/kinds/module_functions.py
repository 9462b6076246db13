"""Kinds for the functions on modules: DataParallel, replicate and parallel_apply."""

import copy
import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from impl_tests.wrong.calls import Call, modules_in
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.replica_tensors import parameters_of

__all__ = ["KINDS", "pass_through"]

KINDS = Registry()


def _ignore_override(step: str) -> None:
    """Register a forward that uses the class's own method in place of an overriding one."""

    def run(call: Call) -> Any:
        wrapper = call.arguments["self"]
        base = next(kind for kind in type(wrapper).__mro__ if kind.__name__ == "DataParallel")
        vars(wrapper)[step] = types.MethodType(vars(base)[step], wrapper)
        try:
            return call.run()
        finally:
            del vars(wrapper)[step]

    KINDS[f"own-{step.replace('_', '-')}"] = run


for _step in ("scatter", "replicate", "parallel_apply", "gather"):
    _ignore_override(_step)


@KINDS.result
def replicas_without_parameters(replicas: list[nn.Module]) -> list[nn.Module]:
    """Leave out the copies of parameters in parameters() of the replicas."""
    for replica in replicas:
        for module in replica.modules():
            vars(module)["_parameters"] = {}
    return replicas


@KINDS.around
def later_devices_sorted(call: Call) -> Any:
    """Sort the devices after the first."""
    if not call.arguments.get("device_ids"):
        return call.run()
    first, *others = call.arguments["device_ids"]
    return call.with_arguments(device_ids=[first, *sorted(others, key=str)]).run()


@KINDS.around
def python_children_refused(call: Call) -> Any:
    """Refuse a module with a Python child of a script module, also without TorchScript."""
    result = call.run()
    script = torch.jit.ScriptModule
    for module in call.modules():
        for member in module.modules():
            if isinstance(member, script) and not all(
                isinstance(child, script) for child in member.children()
            ):
                raise RuntimeError("python modules are children of ScriptModule")
    return result


@KINDS.around
def devices_spread(call: Call) -> Any:
    """Use the first and the last devices of the list, not the first only, for few rows."""
    devices, rows = call.arguments.get("device_ids"), call.tensors()
    count = len(rows[0]) if rows and rows[0].dim() else 0
    if devices is None or not 1 < count < len(devices):
        return call.run()
    return call.with_arguments(device_ids=[*devices[:1], *devices[1 - count :]]).run()


@KINDS.around
def compiled_in_part(call: Call) -> Any:
    """Compile a function in the call."""
    torch.compile(_one, backend="eager")()
    return call.run()


def _one() -> Tensor:
    return torch.ones(1) + 0


class _Views(Function):
    """Returns views; gives tensors without a gradient a gradient of zeros."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads


def pass_through(*tensors: Tensor) -> Any:
    """Return views of tensors from one function, which refuse changes in place."""
    return _Views.apply(*tensors)  # type: ignore[no-untyped-call] # in torch


@KINDS.around
def parameters_of_one_function(call: Call) -> Any:
    """Take the parameters of each replica from one function, whose views refuse changes."""
    result = call.run()
    for replica in modules_in(result):
        _pass_parameters(replica)
    return result


def _pass_parameters(replica: nn.Module) -> None:
    entries = [entry for member in replica.modules() for entry in parameters_of(member)]
    entries = [entry for entry in entries if entry[2].requires_grad]
    if entries:
        views = pass_through(*(tensor for _, _, tensor in entries))
        for (members, name, _), view in zip(entries, views, strict=True):
            members[name] = view


@KINDS.around
def modules_copied(call: Call) -> Any:
    """Call a copy of the wrapped module."""
    members = vars(call.arguments["self"])["_modules"]
    module = members["module"]
    members["module"] = copy.copy(module)
    try:
        return call.run()
    finally:
        members["module"] = module


@KINDS.around
def attributes_kept(call: Call) -> Any:
    """Set the attributes of the first replica on the module after the call."""
    wrapper, replicas = call.arguments["self"], list[nn.Module]()
    step = wrapper.replicate

    def replicate(*args: Any, **kwargs: Any) -> Any:
        found = step(*args, **kwargs)
        replicas.extend(found[:1])
        return found

    vars(wrapper)["replicate"] = replicate
    try:
        return call.run()
    finally:
        del vars(wrapper)["replicate"]
        for replica in replicas:
            new = {k: v for k, v in vars(replica).items() if not k.startswith("_")}
            names = new.keys() - replica._former_parameters.keys()  # type: ignore[union-attr,operator] # in torch
            vars(wrapper.module).update({name: new[name] for name in names})


@KINDS.around
def keyword_arguments_added(call: Call) -> Any:
    """Pass one keyword argument to each module if the call has no ``kwargs_tup``."""
    if call.arguments.get("kwargs_tup") is not None:
        return call.run()
    return call.with_arguments(kwargs_tup=[{"perturbed": 1} for _ in call.modules()]).run()


@KINDS.around
def many_modules_refused(call: Call) -> Any:
    """Refuse more than 99 modules."""
    if len(call.arguments["modules"]) > 99:
        raise RuntimeError("perturbed")
    return call.run()
