"""Kinds that change the parameters of the modules in a result."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from impl_tests.wrong.calls import Call, modules_in
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS", "buffers_of", "change_into", "parameters_of"]

KINDS = Registry()
_Change = Callable[[nn.Module], object]


def change_into(kinds: Registry) -> Callable[[_Change], _Change]:
    """Return a decorator that registers a change of each module and submodule in the result."""

    def decorator(change: _Change) -> _Change:
        def run(call: Call) -> Any:
            result = call.run()
            for replica in modules_in(result):
                for member in list(replica.modules()):
                    try:
                        change(member)
                    except Exception:  # this module cannot be changed in this way
                        continue
            return result

        kinds[f"replicas-{change.__name__.replace('_', '-')}"] = run
        return change

    return decorator


def parameters_of(module: nn.Module) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Return the parameters of a replica, each with its dictionary and its name.

    They may be parameters or plain attributes.
    """
    entries: list[tuple[dict[str, Any], str, Tensor]] = []
    for members in (module._parameters, vars(module)):
        entries += [(members, k, v) for k, v in list(members.items()) if isinstance(v, Tensor)]
    return entries


def buffers_of(module: nn.Module) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Return the buffers of a module, each with its dictionary and its name."""
    return [(module._buffers, k, v) for k, v in module._buffers.items() if v is not None]


change = change_into(KINDS)


@change
def with_changed_parameters(module: nn.Module) -> None:
    """Change the values of parameters."""
    for members, name, tensor in parameters_of(module):
        members[name] = tensor * 2 + 1


@change
def with_detached_parameters(module: nn.Module) -> None:
    """Detach the parameters."""
    for members, name, tensor in parameters_of(module):
        members[name] = tensor.detach()


@change
def with_cloned_parameters(module: nn.Module) -> None:
    """Clone the parameters."""
    for members, name, tensor in parameters_of(module):
        members[name] = tensor.clone()


@change
def with_viewed_parameters(module: nn.Module) -> None:
    """Replace the parameters by views."""
    for members, name, tensor in parameters_of(module):
        members[name] = tensor.view_as(tensor)


@change
def with_leaf_parameters(module: nn.Module) -> None:
    """Replace the parameters by leaves that require a gradient."""
    for members, name, tensor in parameters_of(module):
        members[name] = tensor.detach().requires_grad_()


@change
def with_real_parameters(module: nn.Module) -> None:
    """Register parameters in place of plain tensors."""
    for members, name, tensor in parameters_of(module):
        members.pop(name)
        module._parameters[name] = nn.Parameter(tensor.detach())


@change
def without_parameters(module: nn.Module) -> None:
    """Remove the parameters."""
    for members, name, _ in parameters_of(module):
        members.pop(name)


@change
def with_shadowed_parameters(module: nn.Module) -> None:
    """Set the copies of parameters as plain attributes, too."""
    vars(module).update(module._parameters)


@change
def with_other_strides(module: nn.Module) -> None:
    """Replace parameters and buffers by tensors with other strides."""
    for members, name, tensor in [*parameters_of(module), *buffers_of(module)]:
        order = list(range(tensor.dim()))[::-1]
        found = tensor.permute(order).contiguous().permute(order)
        members[name] = tensor.contiguous() if not tensor.is_contiguous() else found


@change
def with_plain_tensors(module: nn.Module) -> None:
    """Replace tensor subclasses by plain tensors."""
    for members, name, tensor in [*parameters_of(module), *buffers_of(module)]:
        members[name] = tensor.as_subclass(Tensor)


@change
def with_flat_parameters(module: nn.Module) -> None:
    """Replace the parameters by vectors."""
    for members, name, tensor in parameters_of(module):
        members[name] = tensor.reshape(-1)


@change
def with_parameters_of_one_version(module: nn.Module) -> None:
    """Put the parameters of a module into one buffer, with one version counter."""
    entries = parameters_of(module)
    buffer, start = torch.cat([tensor.reshape(-1) for *_, tensor in entries]), 0
    for members, name, tensor in entries:
        members[name] = buffer.narrow(0, start, tensor.numel()).view(tensor.shape)
        start += tensor.numel()
