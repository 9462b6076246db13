"""impl._copies: what travels together, to the replicas and home."""

import torch

from impl import _copies
from spec_tests.harness.streams import streams_of


def test_what_is_cut_off_travels_as_one_whether_it_required_grad_or_not(topology):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    sources = [torch.ones(2, device=first, requires_grad=grad) for grad in (True, False, True)]
    assert len(streams_of(lambda: _copies.detached_copies(sources, [second]))) == 1


def test_small_gradients_travel_as_one(topology):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    rows = [[torch.ones(2, device=it), torch.ones(3, device=it)] for it in (first, second)]
    found = []
    assert len(streams_of(lambda: found.extend(_copies._sums(rows, first)))) == 1
    assert [total.tolist() for total in found] == [[2.0] * 2, [2.0] * 3]


def test_a_gradient_that_comes_from_one_replica_is_not_added(topology):
    grad = torch.ones(2, device=topology.device(0))
    total, other = _copies._sums([[None, grad], [grad, None]], topology.device(0))
    assert total is other is grad
