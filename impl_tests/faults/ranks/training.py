"""The training steps of each rank. Their results are compared with those of one process."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from impl.distributed import DataParallel

from .cases import Case
from .faults import RankFault

__all__ = ["STEPS", "WrongResultError", "train"]

#: The number of steps. The first succeeds, and ranks are lost in the second. If ranks are lost at
#: the end of the second, the others notice this in the third. The fourth is an additional step.
STEPS = 4
#: Results of the ranks differ from those of one process by rounding of float64 only.
_TOLERANCE = 1e-9


class WrongResultError(Exception):
    """A step returned a wrong result."""


class _Net(nn.Module):
    """Two layers and a buffer. Faults of the places `forward` and `backward` occur in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 8).double(), nn.Linear(8, 2).double()
        self.register_buffer("offset", torch.ones(2, dtype=torch.float64))
        self.fault: RankFault | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the second layer plus the buffer."""
        hidden = self.first(x).tanh()
        if self.fault is not None:
            fault = self.fault
            fault.reach("forward")
            hidden.register_hook(lambda grad: fault.reach("backward"))
        out: Tensor = self.second(hidden) + self.offset
        return out


class _WatchedList(list[Any]):
    """A list. A fault of the place `part` occurs when an iteration over the list begins."""

    def __init__(self, items: Any, fault: RankFault | None = None) -> None:
        super().__init__(items)
        self._fault = fault

    def __iter__(self) -> Iterator[Any]:
        if self._fault is not None:
            self._fault.reach("part")
        return super().__iter__()


def train(case: Case, rank: int, fault: RankFault) -> None:
    """Run all steps on this rank. Raise WrongResultError if the result of a step is wrong."""
    torch.manual_seed(case.seed)
    alone = _Net()
    net = copy.deepcopy(alone)
    net.fault = fault
    # The buckets are small, one for each layer, so that backward has several collectives.
    wrapped = DataParallel(net, gather_output=case.gather_output, bucket_cap_mb=1e-4)
    for step in range(STEPS):
        x, y = torch.randn(2, 2 * case.size + 1, 2, dtype=torch.float64)
        inputs = [x.clone().requires_grad_(case.input_grads) for _ in range(2)]
        expected = _step_alone(alone, inputs[1], y, case)
        fault.begin_step(is_armed=step == 1)
        fault.reach("between")
        found = _step(wrapped, inputs[0], y, case, fault)
        if not case.gather_output:
            expected[0] = expected[0].chunk(case.size)[rank]
        _compare([*found, *_grads(net, inputs[0])], [*expected, *_grads(alone, inputs[1])])
        for each in (net, alone):
            _update(each)


def _step(
    wrapped: DataParallel[_Net], x: Tensor, y: Tensor, case: Case, fault: RankFault
) -> list[Tensor]:
    """Run a step of this rank; return its output and the loss."""
    fault.phase = "forward"
    out = wrapped(x)
    if case.gather_output:
        loss = ((out - y) ** 2).sum(1).mean()
    else:
        (target,) = list.__iter__(wrapped.part(_WatchedList([y], fault)))
        fault.phase = "mean"
        loss = wrapped.mean(((out - target) ** 2).sum(1))
    fault.phase = "backward"
    loss.backward()
    return [out.detach(), loss.detach()]


def _step_alone(net: _Net, x: Tensor, y: Tensor, case: Case) -> list[Tensor]:
    """Run a step in this process only; return the whole output and the loss."""
    out = net(x)
    loss = ((out - y) ** 2).sum(1).mean()
    loss.backward()
    return [out.detach(), loss.detach()]


def _update(net: _Net) -> None:
    """Do a step of gradient descent. The module torch.optim would be slow to import."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=0.1)
            parameter.grad = None


def _grads(net: _Net, x: Tensor) -> list[Tensor]:
    leaves = [*net.parameters(), x]
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def _compare(found: list[Tensor], expected: list[Tensor]) -> None:
    if len(found) != len(expected):
        raise WrongResultError(f"{len(found)} tensors, not {len(expected)}")
    for index, (left, right) in enumerate(zip(found, expected, strict=True)):
        if left.shape != right.shape or not torch.allclose(left, right, atol=_TOLERANCE):
            raise WrongResultError(f"tensor {index} is {left}, not {right}")
