"""A module and everything below it, walked once."""

from dataclasses import dataclass

from torch import Tensor, nn

__all__ = ["Tree", "collect_tree"]


@dataclass(frozen=True, slots=True)
class Tree:
    """What there is to copy, each thing once however often it is reached.

    Attributes:
        modules: Every module, before those that are first reached through it.
        parameters: Parameters, in the order of ``modules``.
        buffers: Buffers, in the order of ``modules``.
    """

    modules: list[nn.Module]
    parameters: list[Tensor]
    buffers: list[Tensor]


def collect_tree(network: nn.Module) -> Tree:
    """List the modules, parameters and buffers of ``network``."""
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
    return Tree(list(modules), _present(parameters), _present(buffers))


def _present(found: dict[int, Tensor | None]) -> list[Tensor]:
    return [tensor for tensor in found.values() if tensor is not None]
