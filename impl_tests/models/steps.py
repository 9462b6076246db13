"""Three training steps of a model, on one side."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import impl

from .aligning import aligned
from .model import ROWS, Model
from .parts import parts

__all__ = ["SIDES", "Run", "run"]

_STEPS = 3
_DEVICES = [0, 1]


class _Side(NamedTuple):
    wrap: Callable[[nn.Module], nn.Module]
    device: str = "sim:0"
    #: Whether backward has a thread for each device. Three gradients of one tensor are then added
    #: in the order in which they come, which is another in each run, on the reference, too.
    threads: bool = False


#: One device; torch.nn.parallel on two; impl on two; both once more, with aligned copies; impl as
#: users run it; impl in two threads on the CPU.
SIDES: Mapping[str, _Side] = {
    "plain": _Side(lambda module: module),
    "reference": _Side(lambda module: torch.nn.DataParallel(module, _DEVICES)),
    "impl": _Side(lambda module: impl.DataParallel(module, _DEVICES)),
    "aligned reference": _Side(lambda module: aligned(torch.nn.DataParallel)(module, _DEVICES)),
    "aligned impl": _Side(lambda module: aligned(impl.DataParallel)(module, _DEVICES)),
    "threads": _Side(lambda module: impl.DataParallel(module, _DEVICES), threads=True),
    "lanes": _Side(lambda module: impl.DataParallel(module, ["cpu", "cpu"]), "cpu", threads=True),
}


@dataclass(frozen=True)
class Run:
    """What three steps leave behind.

    Args:
        losses: One a step.
        outputs: The tensors of the last step's outputs, by their places in them.
        weights: The module's state afterwards.
    """

    losses: list[float]
    outputs: dict[str, Tensor]
    weights: dict[str, Tensor]


def run(model: Model, side: str, *, batch_statistics: bool = False) -> Run:
    """Train ``model`` for three steps.

    Args:
        model: What to train. Random numbers are the same on all sides, in the model's making and
            in its inputs.
        side: One of :data:`SIDES`.
        batch_statistics: Let batch norms take the statistics of what they are given, which is
            another thing on each side: a batch, or its parts.
    """
    wrap, device, threads = SIDES[side]
    torch.manual_seed(0)
    torch.get_device_module("sim").manual_seed_all(0)
    module = model.build().train()
    for member in module.modules():
        if isinstance(member, _BatchNorm):
            member.train(batch_statistics)
    torch.manual_seed(1)
    batches = [_moved(model.inputs(ROWS), device) for _ in range(_STEPS)]
    with torch.autograd.set_multithreading_enabled(threads):
        return _train(wrap(module.to(device)), module, batches, model.loss)


def _train(
    wrapped: nn.Module, module: nn.Module, batches: list[Any], loss_of: Callable[[Any], Tensor]
) -> Run:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    losses = []
    outputs: dict[str, Tensor] = {}
    for batch in batches:
        output = wrapped(**batch) if isinstance(batch, dict) else wrapped(*batch)
        outputs = parts(output)
        loss = loss_of(output)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    state = {name: value for name, value in module.state_dict().items() if torch.is_tensor(value)}
    return Run(
        losses, outputs, {name: copy.deepcopy(value.cpu()) for name, value in state.items()}
    )


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(member, device) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(member, device) for member in value)
    return value
