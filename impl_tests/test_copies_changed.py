"""impl._copies: what becomes of copies at home that are changed in place."""

import pytest
import torch

from impl._copies import copies

SIZES = pytest.mark.parametrize("buffer_size", [0, 8, 16, 1 << 20], ids="bytes={}".format)


KINDS = {"leaves": lambda leaf: leaf, "views": lambda leaf: leaf.clone()[:1]}


def leaves(device):
    return [torch.tensor([1.0, 2.0], device=device).requires_grad_() for _ in range(4)]


def slopes(rows, roots):
    home = roots[0].device
    total = sum((copy.to(home) * copy.to(home)).sum() for row in rows for copy in row)
    return [slope[0].item() for slope in torch.autograd.grad(total, roots)]


@SIZES
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("slots", [(0,), (0, 1), (1, 0, 2), (0, 0, 0, 1)], ids=str)
def test_any_may_change_without_grad(topology, buffer_size, kind, place, slots):
    roots = leaves(topology.device(0))
    sources = list(map(kind, roots))
    rows = copies(sources, topology.take(slots), buffer_size=buffer_size)
    with torch.no_grad():
        rows[slots.index(0)][place].mul_(3)
    expected = [2.0 * len(slots)] * 4
    expected[place] += 4.0
    values = [each[0].item() for each in sources]
    assert values == [3.0 if at == place else 1.0 for at in range(4)]
    assert slopes(rows, roots) == expected


@pytest.mark.parametrize("place", range(4))
def test_any_that_is_no_leaf_may_change_with_grad(topology, place):
    roots = leaves(topology.device(0))
    sources = list(map(KINDS["views"], roots))
    changed = copies(sources, topology.take(2))[0][place].mul_(3)
    (slope,) = torch.autograd.grad(changed.square().sum(), roots[place])
    assert sources[place].item() == 3.0
    assert slope.tolist() == [18.0, 0.0]


def test_what_has_changed_is_freed_while_backward_goes_on(topology):
    home = topology.device(0)
    early, late = leaves(home)[:2]
    rows = copies([early, late], [home, home], buffer_size=1)
    with torch.no_grad():
        rows[0][1].mul_(3)
    seen = []
    firsts = [row[0] * 2 for row in rows]
    firsts[0].register_hook(lambda grad: seen.append(late.grad is not None))
    results = [first * 2 * 2 * row[1] for first, row in zip(firsts, rows, strict=True)]
    sum(results).sum().backward()
    assert seen == [True]
