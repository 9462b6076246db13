"""Train a model for three steps, with or without a DataParallel wrapper."""

import copy
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

import impl
from spec_tests.checks.outcome import seed_generators

from .model import ROWS, Model
from .tensors import collect_tensors

__all__ = ["PLAIN_CPU", "VARIANTS", "Run", "run"]

_STEPS = 3
_DEVICES = [0, 1]
#: The variant without a wrapper on the CPU. Back ends are compared with it.
PLAIN_CPU = "plain CPU"


class _Variant(NamedTuple):
    """A way to train: a wrapper, the device of the module, and the threads of backward."""

    wrap: Callable[[nn.Module], nn.Module]
    #: Whether the module is on the CPU. Otherwise it is on the first device of the accelerator.
    on_cpu: bool = False
    #: Whether backward uses one thread per device, which is PyTorch's default outside these tests.
    #: With several threads, gradients of a tensor are added in a random order and round randomly.
    threads: bool = False


#: Name in the results -> variant.
VARIANTS: Mapping[str, _Variant] = {
    "one device": _Variant(lambda module: module),
    "reference": _Variant(lambda module: torch.nn.DataParallel(module, _DEVICES)),
    "impl": _Variant(lambda module: impl.DataParallel(module, _DEVICES)),
    "threads": _Variant(lambda module: impl.DataParallel(module, _DEVICES), threads=True),
    "cpu": _Variant(lambda module: impl.DataParallel(module, ["cpu", "cpu"]), True, threads=True),
    PLAIN_CPU: _Variant(lambda module: module, True),
}


@dataclass(frozen=True)
class Run:
    """The results of three steps.

    Args:
        losses: One loss per step.
        outputs: Path -> tensor, for the outputs of the last step.
        weights: The state dict of the module after the last step.
    """

    losses: list[float]
    outputs: dict[str, Tensor]
    weights: dict[str, Tensor]


def run(model: Model, variant: str, *, batch_statistics: bool = False) -> Run:
    """Train ``model`` for three steps; return the results.

    Args:
        model: The model. Its weights and inputs are the same for all variants.
        variant: A key of :data:`VARIANTS`.
        batch_statistics: Whether batch norms use the statistics of their input, which differ
            between the whole batch and a chunk.
    """
    wrap, on_cpu, threads = VARIANTS[variant]
    device = "cpu" if on_cpu else f"{torch.accelerator.current_accelerator()}:0"
    seed_generators()
    module = model.build().train()
    for member in module.modules():
        if isinstance(member, _BatchNorm):
            member.train(batch_statistics)
    move = operator.methodcaller("to", device)
    torch.manual_seed(1)
    batches = [tree_map_only(Tensor, move, model.inputs(ROWS)) for _ in range(_STEPS)]
    _number_nodes_above_those_of_workers()
    with torch.autograd.set_multithreading_enabled(threads):
        return _train(wrap(module.to(device)), module, batches, model.loss)


def _number_nodes_above_those_of_workers() -> None:
    """Make nodes in this thread, more than a run makes in a worker.

    A backward runs the ready nodes with the largest numbers first. Each thread numbers its nodes,
    and workers of impl continue with the numbers of earlier runs. With smaller numbers in this
    thread, the backward of one output of a module would run before that of another begins, which
    changes the order in which gradients are added, and the last bits of their sum.
    """
    tensor = torch.ones((), requires_grad=True)
    for _ in range(20_000):
        tensor.clone()


def _train(
    wrapped: nn.Module,
    module: nn.Module,
    batches: list[Any],
    compute_loss: Callable[[Any], Tensor],
) -> Run:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    losses = []
    outputs: dict[str, Tensor] = {}
    for batch in batches:
        output = wrapped(**batch) if isinstance(batch, dict) else wrapped(*batch)
        outputs = collect_tensors(output)
        loss = compute_loss(output)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    state = {name: value for name, value in module.state_dict().items() if torch.is_tensor(value)}
    weights = {name: copy.deepcopy(value.cpu()) for name, value in state.items()}
    return Run(losses, outputs, weights)
