"""impl.distributed: an error or a killed process on one rank ends the call on every rank."""

import os
import signal

import pytest
import torch
from torch import nn

from bench.rank_pool import Raised
from impl import distributed
from impl_tests.distributed.modules import make_linear, make_rank_rows
from impl_tests.distributed.results import check_close, check_same_error, copy_to_cpu


class ActOnRanks(nn.Module):
    """Linear layer that performs an action on some ranks.

    Args:
        action: A function of the rank, called in forward or in backward.
        ranks: The ranks that call ``action``. The first number in a rank's input is the rank.
        in_backward: Whether ``action`` is called in backward instead of in forward.
    """

    def __init__(self, action, ranks, in_backward=False):
        super().__init__()
        self.layer = make_linear()
        self.action, self.ranks, self.in_backward = action, ranks, in_backward

    def forward(self, x):
        rank = int(x[0, 0])
        y = self.layer(x)
        if rank in self.ranks and not self.in_backward:
            self.action(rank)
        if rank in self.ranks and self.in_backward:
            y.register_hook(lambda grad: self.action(rank))
        return y


def raise_key_error(rank):
    raise KeyError(f"of {rank}")


def raise_on_ranks(context, action, ranks):
    net = distributed.DataParallel(ActOnRanks(action, ranks), context.group)
    net(make_rank_rows(context.size))


@pytest.mark.parametrize(
    ("size", "failing"),
    [(2, (0,)), (2, (1,)), (4, (2,)), (4, (3,)), (4, (1, 2)), (4, (0, 1, 2, 3)), (4, (3, 2))],
)
def test_the_error_of_the_lowest_failed_rank_is_raised_on_every_rank(pool, size, failing):
    found = pool.run(size, raise_on_ranks, raise_key_error, failing)
    first = min(failing)
    text = f"Caught KeyError in rank {first} on device cpu"
    check_same_error(found, "KeyError", text, "raise_key_error", f"of {first}")


def raise_local_error(rank):
    class LocalError(ValueError):
        pass

    raise LocalError(f"of {rank}")


def test_an_unpicklable_error_is_raised_as_a_runtime_error(pool):
    found = pool.run(3, raise_on_ranks, raise_local_error, (1,))
    text = "Caught LocalError in rank 1"
    check_same_error(found, "RuntimeError", text, "of 1", "raise_local_error")


def step_after_error(context):
    module = ActOnRanks(raise_key_error, (1,))
    net = distributed.DataParallel(module, context.group)
    try:
        net(make_rank_rows(context.size))
    except KeyError:
        module.ranks = ()
    net(make_rank_rows(context.size)).sum().backward()
    return copy_to_cpu(module.layer.weight.grad)


def test_a_step_after_a_failed_call_has_the_gradients_of_all_ranks(pool):
    net = make_linear()
    net(make_rank_rows(3)).sum().backward()
    check_close(pool.run(3, step_after_error), [net.weight.grad] * 3)


def return_unpicklable(context):
    net = distributed.DataParallel(nn.Identity(), context.group)
    net([make_rank_rows(context.size), lambda: None])


def test_an_unpicklable_output_is_refused_on_every_rank(pool):
    found = pool.run(3, return_unpicklable)
    assert [type(result) for result in found] == [Raised] * 3, found
    assert "in rank 0" in found[0].text
    # Python releases differ in the rest of the error text of pickle.
    assert "return_unpicklable.<locals>.<lambda>" in found[0].text


def kill_process(rank):
    os.kill(os.getpid(), signal.SIGKILL)


def exit_process(rank):
    os._exit(0)


def call_twice_after_end(context, action, ended_rank):
    module = ActOnRanks(action, (ended_rank,))
    net = distributed.DataParallel(module, context.group)
    errors = []
    for _ in range(2):
        try:
            net(make_rank_rows(context.size))
        except RuntimeError as error:
            errors.append(str(error))
    return errors


@pytest.mark.parametrize("action", [kill_process, exit_process])
def test_a_process_that_ends_in_forward_is_named_by_this_and_by_later_calls(start_pool, action):
    found = start_pool(4).run(4, call_twice_after_end, action, 2)
    assert found.pop(2) is None
    for first, second in found:
        assert "rank 2 of 4 has ended" in first
        assert "rank 2 of 4 has ended" in second


def wrap_after_error(context):
    """Wrap a module that DDP refuses, then others, and return the errors and an output."""
    errors = []
    for _ in range(2):
        net = make_linear()
        net.matrix = nn.Parameter(torch.eye(2).to_sparse(), requires_grad=False)
        try:
            distributed.DataParallel(net, context.group)
        except RuntimeError as error:
            errors.append(str(error))
    x = make_rank_rows(context.size)
    return errors, copy_to_cpu(distributed.DataParallel(make_linear(), context.group)(x))


def test_an_error_of_the_constructor_on_all_ranks_ends_no_later_call(pool):
    for errors, output in pool.run(3, wrap_after_error):
        assert len(errors) == 2
        assert all(error.startswith("No support for sparse tensors") for error in errors)
        check_close(output, copy_to_cpu(make_linear()(make_rank_rows(3))))


def end_in_constructor(context, action, ended_rank):
    if context.rank == ended_rank:
        action(ended_rank)
    distributed.DataParallel(make_linear(), context.group)


def end_in_backward(context, action, ended_rank):
    module = ActOnRanks(action, (ended_rank,), in_backward=True)
    net = distributed.DataParallel(module, context.group)
    net(make_rank_rows(context.size)).sum().backward()


@pytest.mark.parametrize("action", [kill_process, exit_process])
@pytest.mark.parametrize("step", [end_in_constructor, end_in_backward])
def test_a_process_that_ends_is_named_on_every_other_rank(start_pool, step, action):
    found = start_pool(3).run(3, step, action, 0)
    assert found.pop(0) is None
    for result in found:
        assert isinstance(result, Raised), found
        assert "rank 0 of 3 has ended" in result.text
