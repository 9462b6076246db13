"""Training steps whose every number can be compared: over processes and in one process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.distributed.pool import Rank
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.layers import ROW_WISE
from spec_tests.strategies.modules import ModuleSpec, module_specs

#: In float64 sums of a few hundred terms in another order differ by less.
ROUNDING = 1e-9
CPU = torch.device("cpu")
#: A topology without devices, for processes that have none: of it the CPU only is asked for.
NOWHERE = Topology("cpu", ())

Wrap = Callable[[nn.Module], Any]


@dataclass(frozen=True)
class Training:
    """Some steps of training.

    Args:
        module: The network.
        ranks: How many processes, or devices of one process.
        rows: The rows of the batch of each step.
        chunk_sizes: One for each rank, or None.
        calls: How often the network is called before a backward.
        penalty: Factor of the sum of squares of all parameters, which is added to the loss.
        accumulates: Whether gradients are kept from step to step.
        options: More arguments of ``DataParallel`` over processes.
    """

    module: ModuleSpec
    ranks: int
    rows: tuple[int, ...]
    chunk_sizes: tuple[int, ...] | None = None
    calls: int = 1
    penalty: float = 0.0
    accumulates: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, wrap: Wrap, device: torch.device) -> dict[str, Any]:
        """Train; give losses, outputs, gradients and parameters, and the buffers at the end."""
        net = self.module.build(NOWHERE, None).to(device)
        wrapped = wrap(net)
        spare = torch.zeros(1)  # Optimizers refuse to have nothing to do.
        optimizer = torch.optim.SGD([*net.parameters(), spare], lr=0.1, momentum=0.5)
        steps = [self._step(wrapped, net, optimizer, index, device) for index in self._indices()]
        return {"steps": steps, "buffers": [_plain(each) for each in net.buffers()]}

    def _indices(self) -> range:
        return range(len(self.rows))

    def _step(
        self, wrapped: Any, net: nn.Module, optimizer: Any, index: int, device: torch.device
    ) -> list[Any]:
        if not self.accumulates:
            optimizer.zero_grad()
        x = _batch(self.rows[index], index, device)
        outputs = [wrapped(x * (call + 1)) for call in range(self.calls)]
        loss = sum((output**2).sum() for output in outputs) + self._penalty_of(net)
        loss.backward()
        optimizer.step()
        grads = [_plain(each.grad) for each in [x, *net.parameters()]]
        return [_plain(loss), list(map(_plain, [*outputs, *net.parameters()])), grads]

    def _penalty_of(self, net: nn.Module) -> Any:
        return self.penalty * sum((each**2).sum() for each in net.parameters())


def in_rank(rank: Rank, training: Training) -> dict[str, Any]:
    """Train over processes."""
    options = {"chunk_sizes": training.chunk_sizes, **training.options}
    return training.run(lambda net: rank.distributed.DataParallel(net, rank.group, **options), CPU)


def in_process(target: Target, topology: Topology, training: Training) -> dict[str, Any]:
    """Train in one process, on as many devices as there would be ranks."""
    devices = topology.take(training.ranks)
    given = {} if training.chunk_sizes is None else {"chunk_sizes": training.chunk_sizes}
    return training.run(
        lambda net: target.data_parallel.DataParallel(net, devices, **given), devices[0]
    )


def agree(ranks: Any, target: Target, topology: Topology, training: Training) -> None:
    """Fail unless every rank has the numbers of one process; the buffers are rank 0's."""
    __tracebackhide__ = True
    expected = in_process(target, topology, training)
    found = ranks.run(training.ranks, in_rank, training)
    for rank, facts in enumerate(found):
        parts = ["steps", "buffers"] if rank == 0 else ["steps"]
        for part in parts:
            close(facts[part] if isinstance(facts, dict) else facts, expected[part], training)


def close(actual: Any, expected: Any, call: object = "") -> None:
    """Fail unless nested values are equal, their tensors but for rounding."""
    __tracebackhide__ = True
    one, other = _flat(actual), _flat(expected)
    if [each for each in one if not isinstance(each, Tensor)] != [
        each for each in other if not isinstance(each, Tensor)
    ]:
        raise AssertionError(f"{actual!r}\nis not\n{expected!r}\nof the call\n  {call!r}")
    tensors = [[each for each in flat if isinstance(each, Tensor)] for flat in (one, other)]
    try:
        torch.testing.assert_close(*tensors, rtol=ROUNDING, atol=ROUNDING)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{actual!r}\nof the call\n  {call!r}") from None


def _flat(value: Any) -> list[Any]:
    """The leaves of nested containers, each container's kind and length before its members."""
    if isinstance(value, dict):
        return [len(value), *(leaf for item in value.items() for leaf in _flat(item))]
    if isinstance(value, list | tuple):
        return [len(value), *(leaf for member in value for leaf in _flat(member))]
    return [value]


@st.composite
def trainings(
    draw: st.DrawFn,
    *,
    max_ranks: int = 4,
    kinds: tuple[str, ...] = tuple(kind for kind in ROW_WISE if kind != "half"),
    rows: st.SearchStrategy[int] | None = None,
) -> Training:
    """Two steps of a small network. Shrinks to one linear layer and two ranks."""
    ranks = draw(st.integers(2, max_ranks) | st.just(1))
    weights = st.tuples(*[st.integers(0, 3)] * ranks).filter(any)
    counts = st.sampled_from([4, 3, 8, 5, 1, 2]) if rows is None else rows
    return Training(
        draw(module_specs(kinds=kinds, dtypes=(torch.float64,), max_parts=2)),
        ranks,
        tuple(draw(st.lists(counts, min_size=2, max_size=2))),
        draw(st.none() | weights),
    )


def _batch(rows: int, index: int, device: torch.device) -> Tensor:
    made = torch.arange(rows * 4, dtype=torch.float64).reshape(rows, 4) / 8 - index
    return made.cos().to(device).requires_grad_()


def _plain(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().cpu().clone()
