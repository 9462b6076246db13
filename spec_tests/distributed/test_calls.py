"""distributed: arguments, outputs and gradients of single calls, as in one process."""

import pytest
import torch

from spec_tests.distributed import calls, probes
from spec_tests.distributed.training import close
from spec_tests.harness.conformance.clauses import clause

#: A call of processes takes longer than one of threads; the law draws, these are listed.
SIZES = (2, 3, 4)


def expected(target, size, function, *args):
    """What one process gives with as many devices, here the CPU in several roles."""

    def wrap(net, **options):
        return target.data_parallel.DataParallel(net, ["cpu"] * size, **options)

    return function(wrap, target.package, *args)


def agree(ranks, target, size, function, *args):
    right = expected(target, size, function, *args)
    for found in ranks.run(size, calls.over_ranks, function, *args):
        close(found, right, (size, function, args))


@clause("distributed.arguments")
@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("size", SIZES)
def test_nested_arguments_and_outputs_follow_the_rules_of_one_process(ranks, target, size, rows):
    agree(ranks, target, size, calls.nested, rows)


@clause("distributed.idle-ranks")
@pytest.mark.parametrize("size", SIZES)
def test_ranks_without_rows_return_nothing(ranks, target, size):
    agree(ranks, target, size, calls.nested, 1)  # A list of what those with rows return.


@clause("distributed.split-dimension")
@pytest.mark.parametrize("dim", [1, -1, 0, -2])
def test_any_dimension_can_be_split(ranks, target, dim):
    agree(ranks, target, 4, calls.along, dim)


@clause("distributed.packed-sequences")
@pytest.mark.parametrize("size", SIZES)
def test_packed_sequences_are_cut_and_joined_by_sequence(ranks, target, size):
    agree(ranks, target, size, calls.packed)


@clause("distributed.scalars")
@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize("size", SIZES)
def test_scalars_become_a_vector(ranks, target, size):
    agree(ranks, target, size, calls.scalars)


@clause("distributed.unused-parameters")
@pytest.mark.parametrize("rows", [[-1.0, -1.0, -1.0], [1.0, -1.0, -1.0], [1.0, 1.0, -1.0], [2.0]])
def test_gradients_of_parameters_that_no_rank_uses_stay_none(ranks, target, rows):
    agree(ranks, target, 3, calls.choosy, rows)


@clause("distributed.buffers")
@pytest.mark.parametrize("size", SIZES)
def test_a_call_begins_with_the_buffers_of_the_first_rank(ranks, target, size):
    agree(ranks, target, size, calls.summed_up)


@clause("distributed.hooks")
@pytest.mark.parametrize("size", SIZES)
def test_hooks_of_parameters_are_given_tensors(ranks, target, size):
    agree(ranks, target, size, calls.hooked)


@clause("distributed.no-sync")
@pytest.mark.parametrize("batches", [2, 4])
def test_gradients_are_summed_at_the_end_of_no_sync(ranks, target, batches):
    right = expected(target, 2, calls.all_summed, batches)
    found = ranks.run(2, calls.over_ranks, calls.unsummed, batches)
    assert not torch.equal(found[0][0], found[1][0])  # Each has its own until then.
    close([found[0][1], found[1][1]], [right, right])


@clause("distributed.evaluation")
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_summed_without_gradients(ranks, size):
    assert all(ranks.run(size, calls.over_ranks, calls.sums_of, True))  # They can be seen.
    assert ranks.run(size, calls.over_ranks, calls.sums_of, False) == [[]] * size


@clause("distributed.dropout")
@pytest.mark.parametrize("size", SIZES)
def test_each_rank_draws_from_its_own_generator(ranks, target, size):
    chunks = probes.numbered(size).split(2)
    right = [
        calls.dropped(lambda net, chunk=chunk: lambda _: net(chunk), None, size)
        for chunk in chunks
    ]
    for found in ranks.run(size, calls.over_ranks, calls.dropped, size):
        close(found, torch.cat(right))


@clause("distributed.state-dict")
def test_the_state_has_the_names_that_dataparallel_gives(ranks, target):
    agree(ranks, target, 2, calls.state_of)
