"""How deep values may be nested: as deep as the reference's own recursion goes."""

from functools import partial

import pytest
import torch
from torch import nn

from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.deep_nesting import (
    GATHERED,
    SCATTERED,
    THREE_FRAMES,
    call_on_empty_stack,
    nest,
    unnest,
)

DEPTHS = [*([[kind], depth] for kind, depth in SCATTERED.items()), [[*SCATTERED], THREE_FRAMES]]
GATHER_DEPTHS = [
    *([[kind], depth] for kind, depth in GATHERED.items()),
    [[*GATHERED], THREE_FRAMES],
]


class Same(nn.Module):
    """The identity."""

    def forward(self, x):
        return x


@pytest.fixture(autouse=True)
def warm(target, topology):
    """What torch imports at its first copies takes more of the stack than is left below."""
    wrapped = target.data_parallel.DataParallel(Same(), topology.take(2))
    wrapped(torch.arange(4, device=topology.device(0)))


@clause("scatter_gather.scatter.deep")
@pytest.mark.parametrize(("kinds", "depth"), DEPTHS, ids=str)
def test_a_deep_argument_is_split(target, topology, kinds, depth):
    value = nest(kinds, depth, torch.arange(4, device=topology.device(0)))
    scatter = partial(target.scatter_gather.scatter, value, topology.take(2))
    shares = [unnest(share) for share in call_on_empty_stack(scatter)]
    assert [tensor.tolist() for _, tensor in shares] == [[0, 1], [2, 3]]
    assert [kinds for kinds, _ in shares] == [unnest(value)[0]] * 2


@clause("scatter_gather.scatter.deep")
@pytest.mark.parametrize(("kinds", "depth"), DEPTHS, ids=str)
def test_deep_keyword_arguments_are_split(target, topology, kinds, depth):
    tensor = torch.arange(4, device=topology.device(0))
    args, kwargs = (nest(kinds, depth - 1, tensor),), {"y": nest(kinds, depth - 1, tensor)}
    call = partial(target.scatter_gather.scatter_kwargs, args, kwargs, topology.take(2))
    inputs, named = call_on_empty_stack(call)
    assert [unnest(x)[1].tolist() for (x,) in inputs] == [[0, 1], [2, 3]]
    assert [unnest(each["y"])[1].tolist() for each in named] == [[0, 1], [2, 3]]


@clause("scatter_gather.gather.deep")
@pytest.mark.parametrize(("kinds", "depth"), GATHER_DEPTHS, ids=str)
def test_deep_outputs_are_joined(target, topology, kinds, depth):
    outputs = [
        nest(kinds, depth, torch.full((2,), slot, device=topology.device(slot))) for slot in (0, 1)
    ]
    gather = partial(target.scatter_gather.gather, outputs, topology.device(0))
    found, tensor = unnest(call_on_empty_stack(gather))
    assert (found, tensor.tolist()) == (unnest(outputs[0])[0], [0, 0, 1, 1])


@clause("scatter_gather.gather.deep")
@pytest.mark.parametrize(("kinds", "depth"), GATHER_DEPTHS, ids=str)
def test_a_module_may_return_the_deep_value_that_it_is_given(target, topology, kinds, depth):
    value = nest(kinds, depth - 10, torch.arange(4, device=topology.device(0)))
    wrapped = target.data_parallel.DataParallel(Same(), topology.take(2))
    found, tensor = unnest(call_on_empty_stack(partial(wrapped, value)))
    assert (found, tensor.tolist()) == (unnest(value)[0], [0, 1, 2, 3])


@clause("scatter_gather.scatter.endless")
@pytest.mark.parametrize("function", ["scatter", "gather"])
@pytest.mark.parametrize("kind", [list, dict])
def test_a_container_that_holds_itself_ends_in_a_recursion_error(target, topology, function, kind):
    knot = kind()
    knot.append(knot) if kind is list else knot.update(x=knot)
    arguments = {"scatter": (knot, topology.take(2)), "gather": ([[knot], [knot]], "cpu")}
    with pytest.raises(RecursionError):
        getattr(target.scatter_gather, function)(*arguments[function])
