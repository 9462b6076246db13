"""distributed: a batch that one rank has, outputs that stay apart, the function, one rank."""

import pytest
import torch

from spec_tests.distributed import forms, probes
from spec_tests.distributed.pool import Raised
from spec_tests.distributed.training import close
from spec_tests.harness.clauses import clause


@clause("distributed.source")
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("source", [0, 1, 2])
def test_the_batch_of_one_rank_counts_on_all(ranks, source, rows):
    net = probes.linear()
    x = forms.batch(rows)
    out = net(x * 2)
    (out**2).sum().backward()
    grads = [x.grad if rank == source else None for rank in range(3)]
    right = [(out.detach(), net.weight.grad, grad) for grad in grads]
    close(ranks.run(3, forms.from_source, source, rows), right)


@clause("distributed.source")
def test_a_batch_that_cannot_be_sent_is_refused_on_every_rank(ranks):
    found = ranks.run(3, forms.unsendable_source)
    assert [type(each) for each in found] == [Raised] * 3, found
    assert len({each.text for each in found}) == 1
    assert "in rank 1" in found[0].text


@clause("distributed.own-part")
@pytest.mark.parametrize(("size", "rows"), [(1, 3), (2, 5), (3, 4), (4, 9)])
def test_a_mean_over_parts_has_the_gradients_of_the_whole(ranks, size, rows):
    found = ranks.run(size, forms.own_part, rows)
    assert sum(each[0] for each in found) == rows
    close([each[1:] for each in found], [forms.whole(rows)] * size)


@clause("distributed.function")
@pytest.mark.parametrize("dim", [0, 1])
def test_the_function_computes_what_the_class_does(ranks, dim):
    x = forms.batch(4).detach()
    weight = (18 * x**2 / 3 + x).sum()
    close(ranks.run(3, forms.functional, dim), [(3 * x, 3 * x, weight)] * 3)


@clause("distributed.one-rank")
def test_one_rank_returns_what_its_module_returns(ranks):
    x = forms.batch(2).detach()
    close(ranks.run(1, forms.alone), [(x, 3, True, torch.full_like(x, 2.0), x)])
