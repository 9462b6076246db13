"""data_parallel and DataParallel: outputs and gradients of a batch."""

from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.clauses import clause
from spec_tests.data_parallel import oracles
from spec_tests.strategies.calls import At
from spec_tests.strategies.data_parallel import (
    DataParallelCall,
    New,
    Weighted,
    nested_calls,
    network_calls,
)
from spec_tests.strategies.layers import ROW_WISE
from spec_tests.strategies.tensors import TensorSpec


@clause("data_parallel.outputs")
@given(call=network_calls(kinds=tuple(ROW_WISE), grads=(False,)))
def test_any_network_gives_the_outputs_of_the_reference(target, reference, topology, call):
    checks.agree(call, target, reference, topology, tolerance=checks.LAYER)


@clause("data_parallel.gradients")
@given(call=network_calls(grads=(True,)))
def test_any_network_gives_the_gradients_of_the_reference(target, reference, topology, call):
    checks.agree(call, target, reference, topology, tolerance=checks.LAYER)


@clause("data_parallel.transparent")
@given(call=network_calls(grads=(True,)))
def test_a_wrapped_network_computes_what_the_network_computes(target, topology, call):
    found, expected = oracles.wrapped_and_plain(call, target, topology)
    checks.same(found, expected, call, tolerance=checks.LAYER)


@clause("data_parallel.arguments")
@given(call=nested_calls())
def test_nested_positional_and_keyword_arguments_are_split(target, reference, topology, call):
    checks.agree(call, target, reference, topology)


@clause("data_parallel.split-dimension")
@given(
    dim=st.sampled_from([0, 1, 2, -1, -2, -3]),
    devices=st.lists(st.builds(At, st.integers(0, 3)), min_size=2, max_size=4),
)
def test_arguments_are_split_and_outputs_joined_along_dim(
    target, reference, topology, dim, devices
):
    call = DataParallelCall(New(Weighted), (TensorSpec((3, 4, 5)),), {}, devices, None, dim)
    checks.agree(call, target, reference, topology)


@clause("data_parallel.constants")
@given(call=nested_calls(factors=(0.5, 3)))
def test_other_arguments_reach_every_replica(target, reference, topology, call):
    checks.agree(call, target, reference, topology)
