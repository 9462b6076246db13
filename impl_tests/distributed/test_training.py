"""impl.distributed: every rank computes the same as one process with as many devices."""

from dataclasses import dataclass

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from impl import DataParallel, distributed
from impl_tests.distributed.results import check_close, copy_to_cpu
from spec_tests.machine import profiles
from spec_tests.machine.devices import Topology
from spec_tests.strategies.layers import ROW_WISE
from spec_tests.strategies.modules import SEPARATE, Layer, ModuleSpec, module_specs, move

CPU = torch.device("cpu")
#: The layers of the drawn networks. For weight norm of float64, CUDA computes with float32.
LAYERS = tuple(
    kind for kind in ROW_WISE if kind not in ("half", "weight_norm") and kind in SEPARATE
)
#: A topology without devices, for processes that use the CPU only.
NO_DEVICES = Topology("cpu", ())


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

    def run(self, wrap, device):
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

    def _step(self, wrapped, net, optimizer, step_index, device):
        if not self.accumulates:
            optimizer.zero_grad()
        x = _make_batch(self.rows[step_index], step_index, device)
        outputs = [wrapped(x * (call + 1)) for call in range(self.calls)]
        loss = sum((output**2).sum() for output in outputs) + self._weight_penalty(net)
        loss.backward()
        optimizer.step()
        grads = [copy_to_cpu(each.grad) for each in [x, *net.parameters()]]
        return [copy_to_cpu(loss), list(map(copy_to_cpu, [*outputs, *net.parameters()])), grads]

    def _weight_penalty(self, net):
        return self.weight_decay * sum((each**2).sum() for each in net.parameters())


def train_on_rank(context, training):
    sizes = training.chunk_sizes
    return training.run(
        lambda net: distributed.DataParallel(net, context.group, chunk_sizes=sizes), CPU
    )


def train_in_one_process(topology, training):
    # DataParallel refuses zeros: a rank without rows is a device that is left out.
    sizes = training.chunk_sizes and [size for size in training.chunk_sizes if size]
    devices = topology.take(len(sizes) if sizes else training.ranks)
    return training.run(lambda net: DataParallel(net, devices, chunk_sizes=sizes), devices[0])


def check_same_training(pool, topology, training):
    """Fail unless every rank has the results of one process. Compare buffers on rank 0 only."""
    __tracebackhide__ = True
    expected = train_in_one_process(topology, training)
    found = pool.run(training.ranks, train_on_rank, training)
    for rank, result in enumerate(found):
        for key in ["steps", "buffers"] if rank == 0 else ["steps"]:
            check_close(
                result[key] if isinstance(result, dict) else result, expected[key], training
            )


@st.composite
def trainings(draw):
    """Draw training runs of two steps. Shrinks to one linear layer and two ranks."""
    ranks = draw(st.integers(2, 4) | st.just(1))
    weights = st.tuples(*[st.integers(0, 3)] * ranks).filter(any)
    # With fewer rows than ranks, the last ranks are idle.
    counts = st.sampled_from([4, 3, 8, 5, 1, 2])
    return Training(
        draw(module_specs(kinds=LAYERS, dtypes=(torch.float64,), max_layers_per_level=2)),
        ranks,
        tuple(draw(st.lists(counts, min_size=2, max_size=2))),
        draw(st.none() | weights),
        calls=draw(st.sampled_from([1, 2])),
        weight_decay=draw(st.sampled_from([0.0, 0.5])),
        accumulates=draw(st.booleans()),
    )


def _make_batch(rows, step, device):
    batch = torch.arange(rows * 4, dtype=torch.float64).reshape(rows, 4) / 8 - step
    return batch.cos().to(device).requires_grad_()


LINEAR = ModuleSpec((Layer("linear"),), torch.float64)
STATEFUL = module_specs(
    kinds=("linear", "batch_norm", "counter"), dtypes=(torch.float64,), max_layers_per_level=2
)


@given(training=trainings())
@example(training=Training(LINEAR, ranks=4, rows=(1, 2)))
@example(training=Training(LINEAR, ranks=2, rows=(4, 3), calls=2, accumulates=True))
def test_every_rank_trains_like_one_process(pool, topology, training):
    check_same_training(pool, topology, training)


@profiles.divide_examples(3)
@given(module=STATEFUL, ranks=st.integers(1, 4), calls=st.sampled_from([1, 2]))
def test_rank_zero_has_the_buffers_of_one_process(pool, topology, module, ranks, calls):
    check_same_training(pool, topology, Training(module, ranks, rows=(8, 12), calls=calls))
