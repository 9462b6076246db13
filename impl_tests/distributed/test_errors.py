"""impl.distributed: an error or a killed process on one rank ends the call on every rank."""

import pytest

from impl_tests.distributed import failing_calls, probes
from impl_tests.distributed.pool import Raised
from impl_tests.distributed.test_refusals import check_same_error
from impl_tests.distributed.training import check_close


@pytest.mark.parametrize(("size", "failing"), [(2, 0), (2, 1), (4, 2), (4, 3)])
def test_an_error_is_raised_on_every_rank(pool, size, failing):
    found = pool.run(size, failing_calls.raise_on_ranks, probes.raise_key_error, (failing,))
    text = f"Caught KeyError in rank {failing} on device cpu"
    check_same_error(found, "KeyError", text, "raise_key_error", f"of {failing}")


@pytest.mark.parametrize("failing", [(1, 2), (0, 1, 2, 3), (3, 2)], ids="ranks={}".format)
def test_the_error_of_the_lowest_failed_rank_is_raised(pool, failing):
    found = pool.run(4, failing_calls.raise_on_ranks, probes.raise_key_error, failing)
    check_same_error(found, "KeyError", f"in rank {min(failing)} ")


def test_an_unpicklable_error_is_raised_as_a_runtime_error(pool):
    found = pool.run(3, failing_calls.raise_on_ranks, probes.raise_local_error, (1,))
    text = "Caught LocalError in rank 1"
    check_same_error(found, "RuntimeError", text, "of 1", "raise_local_error")


def test_a_step_after_a_failed_call_has_the_gradients_of_all_ranks(pool):
    net = probes.make_linear()
    net(probes.make_rank_rows(3)).sum().backward()
    check_close(pool.run(3, failing_calls.step_after_error), [net.weight.grad] * 3)


def test_an_unpicklable_output_is_refused_on_every_rank(pool):
    found = pool.run(3, failing_calls.return_unpicklable)
    assert [type(result) for result in found] == [Raised] * 3, found
    assert "in rank 0" in found[0].text
    # Python releases differ in the rest of the error text of pickle.
    assert "return_unpicklable.<locals>.<lambda>" in found[0].text


def test_a_process_killed_in_forward_is_named_by_this_and_by_later_calls(start_pool):
    found = start_pool(4).run(4, failing_calls.call_twice_after_kill, 2)
    assert found.pop(2) is None
    for first, second in found:
        assert "rank 2 of 4 has ended" in first
        assert "rank 2 of 4 has ended" in second


def test_a_process_killed_in_backward_is_named_on_every_other_rank(start_pool):
    found = start_pool(3).run(3, failing_calls.kill_in_backward, 0)
    assert found.pop(0) is None
    for result in found:
        assert isinstance(result, Raised), found
        assert "rank 0 of 3 has ended" in result.text
