"""Train in several processes and in one process, and compare the results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from impl import DataParallel, distributed
from impl_tests.distributed.calls import copy_to_cpu
from impl_tests.distributed.pool import Pool, RankContext
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.layers import ROW_WISE
from spec_tests.strategies.modules import SEPARATE, ModuleSpec, module_specs, move

#: Tolerance for float64 sums of a few hundred terms that are added in different orders.
ROUNDING = 1e-9
CPU = torch.device("cpu")
#: The layers of the drawn networks. For weight norm of float64, CUDA computes with float32.
LAYERS = tuple(
    kind for kind in ROW_WISE if kind not in ("half", "weight_norm") and kind in SEPARATE
)
#: A topology without devices, for processes that use the CPU only.
NO_DEVICES = Topology("cpu", ())

Wrap = Callable[[nn.Module], Any]


@dataclass(frozen=True)
class Training:
    """A training run.

    Args:
        module: The network.
        ranks: The number of processes, or of devices of one process.
        rows: The number of rows of each step's batch.
        chunk_sizes: The chunk size or weight of each rank; None for equal chunks.
        calls: The number of forwards before each backward.
        weight_decay: The factor of the sum of squared parameters in the loss.
        accumulates: Whether gradients accumulate over all steps.
    """

    module: ModuleSpec
    ranks: int
    rows: tuple[int, ...]
    chunk_sizes: tuple[int, ...] | None = None
    calls: int = 1
    weight_decay: float = 0.0
    accumulates: bool = False

    def run(self, wrap: Wrap, device: torch.device) -> dict[str, Any]:
        """Return the losses, outputs, gradients and parameters of each step, and final buffers."""
        net = move(self.module.build(NO_DEVICES, None), device)
        wrapped = wrap(net)
        unused = torch.zeros(1)  # Optimizers refuse an empty list of parameters.
        parameters = [*net.parameters(), unused]
        # The functions torch._foreach_* of some back ends fail.
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.5, foreach=False)
        steps = [
            self._step(wrapped, net, optimizer, step_index, device)
            for step_index in range(len(self.rows))
        ]
        return {"steps": steps, "buffers": [copy_to_cpu(each) for each in net.buffers()]}

    def _step(
        self, wrapped: Any, net: nn.Module, optimizer: Any, step_index: int, device: torch.device
    ) -> list[Any]:
        if not self.accumulates:
            optimizer.zero_grad()
        x = _make_batch(self.rows[step_index], step_index, device)
        outputs = [wrapped(x * (call + 1)) for call in range(self.calls)]
        loss = sum((output**2).sum() for output in outputs) + self._weight_penalty(net)
        loss.backward()
        optimizer.step()
        grads = [copy_to_cpu(each.grad) for each in [x, *net.parameters()]]
        return [copy_to_cpu(loss), list(map(copy_to_cpu, [*outputs, *net.parameters()])), grads]

    def _weight_penalty(self, net: nn.Module) -> Any:
        return self.weight_decay * sum((each**2).sum() for each in net.parameters())


def train_on_rank(context: RankContext, training: Training) -> dict[str, Any]:
    """Return the results of ``training`` on one rank."""
    sizes = training.chunk_sizes
    return training.run(
        lambda net: distributed.DataParallel(net, context.group, chunk_sizes=sizes), CPU
    )


def train_in_one_process(topology: Topology, training: Training) -> dict[str, Any]:
    """Return the results of ``training`` in one process, on one device for each rank."""
    devices = topology.take(training.ranks)
    sizes = training.chunk_sizes
    return training.run(lambda net: DataParallel(net, devices, chunk_sizes=sizes), devices[0])


def check_same_training(pool: Pool, topology: Topology, training: Training) -> None:
    """Fail unless every rank has the results of one process. Compare buffers on rank 0 only."""
    __tracebackhide__ = True
    expected = train_in_one_process(topology, training)
    found = pool.run(training.ranks, train_on_rank, training)
    for rank, result in enumerate(found):
        for key in ["steps", "buffers"] if rank == 0 else ["steps"]:
            check_close(
                result[key] if isinstance(result, dict) else result, expected[key], training
            )


def check_close(actual: Any, expected: Any, call: object = "") -> None:
    """Fail unless nested values are equal. Tensors may differ by `ROUNDING`."""
    __tracebackhide__ = True
    leaves, expected_leaves = _flatten(actual), _flatten(expected)
    if [each for each in leaves if not isinstance(each, Tensor)] != [
        each for each in expected_leaves if not isinstance(each, Tensor)
    ]:
        raise AssertionError(f"{actual!r}\nis not\n{expected!r}\nin the call\n  {call!r}")
    tensors = [
        [each for each in flat if isinstance(each, Tensor)] for flat in (leaves, expected_leaves)
    ]
    try:
        torch.testing.assert_close(*tensors, rtol=ROUNDING, atol=ROUNDING)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{actual!r}\nin the call\n  {call!r}") from None


def _flatten(value: Any) -> list[Any]:
    """Return the leaves of a nested value. The length of a container precedes its leaves."""
    if isinstance(value, dict):
        return [len(value), *(leaf for item in value.items() for leaf in _flatten(item))]
    if isinstance(value, list | tuple):
        return [len(value), *(leaf for member in value for leaf in _flatten(member))]
    return [value]


@st.composite
def trainings(
    draw: st.DrawFn,
    *,
    layer_kinds: tuple[str, ...] = LAYERS,
    rows: st.SearchStrategy[int] | None = None,
) -> Training:
    """Draw training runs of two steps. Shrinks to one linear layer and two ranks."""
    ranks = draw(st.integers(2, 4) | st.just(1))
    weights = st.tuples(*[st.integers(0, 3)] * ranks).filter(any)
    counts = st.sampled_from([4, 3, 8, 5, 1, 2]) if rows is None else rows
    return Training(
        draw(module_specs(kinds=layer_kinds, dtypes=(torch.float64,), max_layers_per_level=2)),
        ranks,
        tuple(draw(st.lists(counts, min_size=2, max_size=2))),
        draw(st.none() | weights),
    )


def _make_batch(rows: int, step: int, device: torch.device) -> Tensor:
    batch = torch.arange(rows * 4, dtype=torch.float64).reshape(rows, 4) / 8 - step
    return batch.cos().to(device).requires_grad_()
