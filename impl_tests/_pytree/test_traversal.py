"""impl._pytree.traversal: levels without calls, for every kind of container and any dataclass."""

import copy
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from impl import gather, scatter
from impl._pytree.inputs import InputLeaves, remove_markers
from impl._pytree.markers import Whole
from impl._pytree.outputs import OutputLeaves
from impl._pytree.traversal import traverse
from spec_tests.strategies.deep_nesting import LEVELS, nest, unnest

MANY = 20_000


@dataclass
class Link:
    """A link of a chain."""

    value: Any
    next: Any = None


def chain(length, value):
    link = Link(value)
    for _ in range(length - 1):
        link = Link(value, link)
    return link


def below(depth):
    """A level with ``depth`` levels below it."""
    if depth:
        yield below(depth - 1)


@pytest.mark.parametrize("kinds", [*([kind] for kind in LEVELS), [*LEVELS]], ids=str)
def test_every_kind_may_be_nested_to_the_recursion_limit(topology, kinds):
    depth = sys.getrecursionlimit()
    value = nest(kinds, depth, torch.arange(4, device=topology.device(0)))
    shares = scatter(value, topology.take(2))
    assert [unnest(share)[1].tolist() for share in shares] == [[0, 1], [2, 3]]
    found, tensor = unnest(gather(shares, topology.device(0)))
    assert (found, tensor.tolist()) == (unnest(value)[0], [0, 1, 2, 3])
    with pytest.raises(RecursionError, match=f"more than {depth} levels"):
        scatter([value], topology.take(2))
    with pytest.raises(RecursionError, match=f"more than {depth} levels"):
        gather([[share] for share in shares], topology.device(0))


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_levels_are_counted(depth):
    limit = sys.getrecursionlimit()
    traverse(below(limit - 1))
    traverse(below(limit - 1 + depth), uncounted=range(depth))
    with pytest.raises(RecursionError):
        traverse(below(limit + depth), uncounted=range(depth))


def test_nothing_has_no_levels():
    assert traverse(None) is None


def test_a_chain_of_dataclasses_without_tensors_stays_itself(topology):
    value = chain(MANY, "text")
    assert [share[0] is value for share in scatter([value], topology.take(2))] == [True, True]


def test_a_chain_of_dataclasses_is_taken_apart_at_any_length():
    tensor = torch.ones(1)
    first = remove_markers(chain(MANY, Whole(tensor)))
    assert (first.value is tensor, first.next.next.value is tensor) == (True, True)


def test_nodes_are_freed_and_copied_at_any_depth():
    node = InputLeaves().flatten(chain(MANY, Whole(1)), None, "x")
    assert len(copy.copy(node).children) == 2
    del node


def test_deep_parts_are_listed_in_order():
    tensors = [torch.ones(1, 2 + size) for size in range(4)]
    first, second, third, fourth = tensors
    leaves = InputLeaves()
    leaves.flatten([first, nest(["list"], 700, [second, (third,)]), fourth], 0, "x")
    assert [id(split.value) for split in leaves.splits] == [*map(id, tensors)]
    outputs = OutputLeaves()
    outputs.flatten([[first, nest(["list"], 700, [second, (third,)]), fourth]], "x")
    assert [id(joined.tensors[0]) for joined in outputs.gathered] == [*map(id, tensors)]
