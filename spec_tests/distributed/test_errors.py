"""distributed: an error ends the call on every rank, and so does a process that ends."""

import pytest

from spec_tests.distributed import probes, refused
from spec_tests.distributed.pool import Raised
from spec_tests.distributed.test_refusals import same_error
from spec_tests.distributed.training import close
from spec_tests.harness.conformance.clauses import clause


@clause("distributed.errors.same")
@pytest.mark.parametrize(("size", "whose"), [(2, 0), (2, 1), (4, 2), (4, 3)])
def test_an_error_is_raised_on_every_rank(ranks, size, whose):
    found = ranks.run(size, refused.failing, probes.raise_key_error, (whose,))
    text = f"Caught KeyError in rank {whose} on device cpu"
    same_error(found, "KeyError", text, "raise_key_error", f"of {whose}")


@clause("distributed.errors.first")
@pytest.mark.parametrize("whose", [(1, 2), (0, 1, 2, 3), (3, 2)])
def test_of_several_errors_that_of_the_first_rank_is_raised(ranks, whose):
    found = ranks.run(4, refused.failing, probes.raise_key_error, whose)
    same_error(found, "KeyError", f"in rank {min(whose)} ")


@clause("distributed.errors.unsendable")
def test_an_error_that_cannot_be_sent_is_a_runtime_error_with_its_text(ranks):
    found = ranks.run(3, refused.failing, probes.raise_local, (1,))
    same_error(found, "RuntimeError", "Caught LocalError in rank 1", "of 1", "raise_local")


@clause("distributed.errors.afterwards")
def test_a_call_after_a_failed_one_is_whole(ranks):
    net = probes.linear()
    net(probes.numbered(3)).sum().backward()
    close(ranks.run(3, refused.failing_then_not), [net.weight.grad] * 3)


@clause("distributed.errors.unsendable-output")
def test_an_output_that_cannot_be_sent_is_refused_on_every_rank(ranks):
    found = ranks.run(3, refused.unsendable)
    assert [type(each) for each in found] == [Raised] * 3, found
    assert "in rank 0" in found[0].text
    # What cannot be pickled is named in the words of pickle, which differ from release to release.
    assert "unsendable.<locals>.<lambda>" in found[0].text


def check_named(found, whose):
    """Fail unless all ranks but one raise, and name that one and no other."""
    __tracebackhide__ = True
    assert found[whose] is None, found
    others = [each for rank, each in enumerate(found) if rank != whose]
    assert [type(each) for each in others] == [Raised] * len(others), found
    text = f"rank {whose} of {len(found)} has ended"
    assert not [each for each in others if text not in each.text], found


@clause("distributed.lost-ranks.forward")
@pytest.mark.parametrize(("size", "whose"), [(4, 2)])
def test_a_process_that_ends_in_forward_is_named_on_every_other_rank(new_ranks, size, whose):
    check_named(new_ranks(size).run(size, refused.dying, whose, False), whose)


@clause("distributed.lost-ranks.backward")
@pytest.mark.parametrize(("size", "whose"), [(2, 0), (4, 1)])
def test_a_process_that_ends_in_backward_is_named_on_every_other_rank(new_ranks, size, whose):
    check_named(new_ranks(size).run(size, refused.dying, whose, True), whose)


@clause("distributed.lost-ranks.later")
def test_later_calls_name_the_lost_rank_at_once(new_ranks):
    check_named(new_ranks(3).run(3, refused.silent, 1), 1)
