"""impl.distributed: every rank computes the same as one process with as many devices."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from impl_tests.distributed.training import Training, check_same_training, trainings
from spec_tests.harness.environment import capabilities, example_count
from spec_tests.strategies.computed_modules import computed
from spec_tests.strategies.modules import Layer, ModuleSpec


@given(training=trainings())
def test_every_rank_trains_like_one_process(pool, topology, training):
    check_same_training(pool, topology, training)


@example_count.divide_examples(2)
@given(training=trainings(rows=st.sampled_from([1, 2])), size=st.integers(3, 4))
def test_idle_ranks_train_like_one_process(pool, topology, training, size):
    more_ranks = replace(training, ranks=size, chunk_sizes=None)
    check_same_training(pool, topology, more_ranks)


@example_count.divide_examples(2)
@given(
    training=trainings(), calls=st.sampled_from([2, 1]), weight_decay=st.sampled_from([0.5, 0.0])
)
def test_gradients_accumulate_over_calls_and_steps(pool, topology, training, calls, weight_decay):
    accumulating = replace(training, calls=calls, weight_decay=weight_decay, accumulates=True)
    check_same_training(pool, topology, accumulating)


@example_count.divide_examples(3)
@given(
    training=trainings(
        layer_kinds=("linear", "batch_norm", "counter"), rows=st.sampled_from([8, 12])
    ),
    calls=st.sampled_from([1, 2]),
)
def test_rank_zero_has_the_buffers_of_one_process(pool, topology, training, calls):
    check_same_training(pool, topology, replace(training, chunk_sizes=None, calls=calls))


def test_twelve_steps_train_like_one_process(pool, topology):
    capabilities.require("float64")
    # Without the last layer, the training diverges on devices without an LSTM.
    kinds = ("linear", "tanh", "batch_norm", "lstm", "linear", "tanh")
    used = computed(kinds)
    net = ModuleSpec(tuple(Layer(kind) for kind in kinds if kind in used), torch.float64)
    check_same_training(pool, topology, Training(net, 3, (9, 8, 12) * 4))
