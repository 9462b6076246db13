"""The modules and tensors of a module tree, as flat lists."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ._arguments import argument
from ._torch_private import exclude_from_compilation


@dataclass(frozen=True, slots=True)
class Tree:
    """The modules of a tree, parents first, and their tensors in this order, each once."""

    modules: list[nn.Module]
    parameters: list[Tensor]
    buffers: list[Tensor]


def collect_tree(network: nn.Module) -> Tree:
    """Return the modules, parameters and buffers of ``network``."""
    modules: dict[nn.Module, None] = {}
    parameters: dict[int, Tensor | None] = {}
    buffers: dict[int, Tensor | None] = {}
    pending = [network]
    while pending:
        module = pending.pop()
        if module in modules:
            continue
        modules[module] = None
        if children := module._modules:
            pending += [child for child in children.values() if child is not None][::-1]
        for parameter in module._parameters.values():
            parameters[id(parameter)] = parameter
        for buffer in module._buffers.values():
            buffers[id(buffer)] = buffer
    return Tree(list(modules), _without_nones(parameters), _without_nones(buffers))


def is_script_module(module: object) -> bool:
    """Return whether ``module`` is a module of TorchScript."""
    return isinstance(module, torch.jit.ScriptModule)


def has_members_outside_dict(module_class: type[nn.Module]) -> bool:
    """Return whether ``module_class`` has slots, or is also a list or a dictionary."""
    return module_class.__basicsize__ > nn.Module.__basicsize__


def _without_nones(tensors: dict[int, Tensor | None]) -> list[Tensor]:
    return [tensor for tensor in tensors.values() if tensor is not None]


@exclude_from_compilation
def check_source(module: nn.Module, source: torch.device) -> None:
    """Raise RuntimeError if a parameter or buffer of ``module`` is not on ``source``."""
    # `module.parameters()` would take three times as long, because it builds names.
    with argument("module"):
        tree = collect_tree(module)
    for tensor in (*tree.parameters, *tree.buffers):
        if tensor.device != source:
            raise RuntimeError(
                "module must have its parameters and buffers on device "
                f"{source} (device_ids[0]) but found one of them on device: {tensor.device}"
            )
