"""distributed: what every rank has is what one process with as many devices has."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.distributed.training import Training, agree, trainings
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.example_count import divided_by
from spec_tests.strategies.modules import Layer, ModuleSpec


@clause("distributed.transparent")
@given(training=trainings())
def test_every_rank_has_the_numbers_of_one_process(ranks, target, topology, training):
    agree(ranks, target, topology, training)


@clause("distributed.idle-ranks")
@divided_by(2)
@given(training=trainings(rows=st.sampled_from([1, 2])), size=st.integers(3, 4))
def test_ranks_without_rows_take_part(ranks, target, topology, training, size):
    agree(ranks, target, topology, replace(training, ranks=size, chunk_sizes=None))


@clause("distributed.accumulates")
@divided_by(2)
@given(training=trainings(), calls=st.sampled_from([2, 1]), penalty=st.sampled_from([0.5, 0.0]))
def test_gradients_add_up_as_in_one_process(ranks, target, topology, training, calls, penalty):
    more = replace(training, calls=calls, penalty=penalty, accumulates=True)
    agree(ranks, target, topology, more)


@clause("distributed.buffers")
@divided_by(3)
@given(
    training=trainings(kinds=("linear", "batch_norm", "counter"), rows=st.sampled_from([8, 12])),
    calls=st.sampled_from([1, 2]),
)
def test_buffers_are_those_of_the_first_rank(ranks, target, topology, training, calls):
    agree(ranks, target, topology, replace(training, chunk_sizes=None, calls=calls))


@clause("distributed.training")
def test_thirty_steps_end_where_one_process_ends(ranks, target, topology):
    kinds = ("linear", "tanh", "batch_norm", "lstm", "linear")
    net = ModuleSpec(tuple(map(Layer, kinds)), torch.float64)
    agree(ranks, target, topology, Training(net, 3, (9, 8, 12) * 10))
