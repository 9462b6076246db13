"""impl.distributed: single calls give the outputs and gradients of one process."""

import pytest
import torch

from impl import DataParallel
from impl_tests.distributed import calls, probes
from impl_tests.distributed.training import check_close

#: Numbers of ranks. They are fixed, because a call on several processes is slow.
SIZES = (2, 3, 4)


def run_in_one_process(size, function, *args):
    """Return the result of ``function`` if DataParallel uses the CPU ``size`` times."""

    def wrap(net, **options):
        return DataParallel(net, ["cpu"] * size, **options)

    return function(wrap, *args)


def check_same_result(pool, size, function, *args):
    expected = run_in_one_process(size, function, *args)
    for found in pool.run(size, calls.call_on_rank, function, *args):
        check_close(found, expected, (size, function, args))


@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("size", SIZES)
def test_calls_with_nested_inputs_match_one_process(pool, size, rows):
    check_same_result(pool, size, calls.call_with_nested_inputs, rows)


@pytest.mark.parametrize("dim", [1, -1, 0, -2])
def test_any_dimension_can_be_split(pool, dim):
    check_same_result(pool, 4, calls.call_with_split_dim, dim)


@pytest.mark.parametrize("size", SIZES)
def test_packed_sequences_are_split_and_joined_by_sequence(pool, size):
    check_same_result(pool, size, calls.call_with_packed_sequence)


@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize("size", SIZES)
def test_scalar_outputs_become_a_vector(pool, size):
    check_same_result(pool, size, calls.call_with_scalar_outputs)


@pytest.mark.parametrize("rows", [[-1.0, -1.0, -1.0], [1.0, -1.0, -1.0], [1.0, 1.0, -1.0], [2.0]])
def test_parameters_that_no_rank_uses_keep_their_gradient(pool, rows):
    check_same_result(pool, 3, calls.call_with_unused_parameters, rows)


@pytest.mark.parametrize("size", SIZES)
def test_hooks_of_parameters_get_tensors_on_every_rank(pool, size):
    check_same_result(pool, size, calls.call_with_hook)


@pytest.mark.parametrize("batches", [2, 4])
def test_gradients_are_summed_after_no_sync(pool, batches):
    expected = run_in_one_process(2, calls.accumulate_gradients, batches)
    found = pool.run(2, calls.call_on_rank, calls.accumulate_gradients_with_no_sync, batches)
    # Inside no_sync the gradients of the ranks differ.
    assert not torch.equal(found[0][0], found[1][0])
    check_close([found[0][1], found[1][1]], [expected, expected])


@pytest.mark.parametrize("size", SIZES)
def test_a_call_without_gradients_starts_no_reduction(pool, size):
    # A training step shows that the profiler records reductions.
    assert all(pool.run(size, calls.call_on_rank, calls.list_reductions, True))
    assert pool.run(size, calls.call_on_rank, calls.list_reductions, False) == [[]] * size


def test_backward_broadcasts_no_buffers(pool):
    """A broadcast would change buffers that the graph has saved: PyTorch 2.11 then raises."""
    found = pool.run(2, calls.call_on_rank, calls.list_collectives_of_backward)
    assert found == [["c10d::allreduce_"]] * 2


@pytest.mark.parametrize("size", SIZES)
def test_each_rank_draws_from_its_own_generator(pool, size):
    # Expected: the same layer with dropout, applied to the rows of each rank with the same seed.
    chunks = probes.make_rank_rows(size).split(2)
    expected = [
        calls.apply_dropout(lambda net, chunk=chunk: lambda _: net(chunk), size)
        for chunk in chunks
    ]
    for found in pool.run(size, calls.call_on_rank, calls.apply_dropout, size):
        check_close(found, torch.cat(expected))


def test_the_state_dict_has_the_names_of_dataparallel(pool):
    check_same_result(pool, 2, calls.save_and_load_state_dict)
