"""scatter_gather: containers nested to the depths that torch.nn.parallel supports."""

from functools import partial

import pytest
import torch
from torch import nn

from spec_tests.checks.threads import call_in_thread
from spec_tests.machine.clauses import clause
from spec_tests.strategies.deep_nesting import (
    GATHERED,
    SCATTERED,
    THREE_FRAMES,
    nest,
    unnest,
)

SCATTER_DEPTHS = [
    *([[kind], depth] for kind, depth in SCATTERED.items()),
    [[*SCATTERED], THREE_FRAMES],
]
GATHER_DEPTHS = [
    *([[kind], depth] for kind, depth in GATHERED.items()),
    [[*GATHERED], THREE_FRAMES],
]


@pytest.fixture(autouse=True)
def imported_torch_modules(target, topology):
    """Run one forward, so that torch imports the modules that it imports on first use.

    An import in a deeply nested call would exceed the recursion limit.
    """
    wrapped = target.data_parallel.DataParallel(nn.Identity(), topology.take(2))
    wrapped(torch.arange(4).to(topology.device(0)))


@clause("scatter_gather.scatter.deep")
@pytest.mark.parametrize(("kinds", "depth"), SCATTER_DEPTHS, ids=str)
def test_deeply_nested_tensor_is_split(target, topology, kinds, depth):
    value = nest(kinds, depth, torch.arange(4).to(topology.device(0)))
    scatter = partial(target.scatter_gather.scatter, value, topology.take(2))
    results = [unnest(result) for result in call_in_thread(scatter)]
    assert [tensor.tolist() for _, tensor in results] == [[0, 1], [2, 3]]
    assert [kinds for kinds, _ in results] == [unnest(value)[0]] * 2


@clause("scatter_gather.gather.deep")
@pytest.mark.parametrize(("kinds", "depth"), GATHER_DEPTHS, ids=str)
def test_deeply_nested_outputs_are_gathered(target, topology, kinds, depth):
    outputs = [
        nest(kinds, depth, torch.full((2,), slot, device=topology.device(slot))) for slot in (0, 1)
    ]
    gather = partial(target.scatter_gather.gather, outputs, topology.device(0))
    found, tensor = unnest(call_in_thread(gather))
    assert (found, tensor.tolist()) == (unnest(outputs[0])[0], [0, 0, 1, 1])


@clause("scatter_gather.gather.deep")
@pytest.mark.parametrize(("kinds", "depth"), GATHER_DEPTHS, ids=str)
def test_data_parallel_accepts_and_returns_deeply_nested_values(target, topology, kinds, depth):
    value = nest(kinds, depth - 10, torch.arange(4).to(topology.device(0)))
    wrapped = target.data_parallel.DataParallel(nn.Identity(), topology.take(2))
    found, tensor = unnest(call_in_thread(partial(wrapped, value)))
    assert (found, tensor.tolist()) == (unnest(value)[0], [0, 1, 2, 3])


@clause("scatter_gather.scatter.endless")
@pytest.mark.parametrize("function", ["scatter", "gather"])
@pytest.mark.parametrize("kind", [list, dict])
def test_container_that_contains_itself_raises_a_recursion_error(target, topology, function, kind):
    container = kind()
    container.append(container) if kind is list else container.update(x=container)
    arguments = {
        "scatter": (container, topology.take(2)),
        "gather": ([[container], [container]], "cpu"),
    }
    with pytest.raises(RecursionError):
        getattr(target.scatter_gather, function)(*arguments[function])
