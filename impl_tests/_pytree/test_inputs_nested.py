"""impl._pytree.inputs: dataclasses that are nested deeper than the recursion limit."""

import sys
from dataclasses import dataclass

from impl._pytree.inputs import InputLeaves


@dataclass
class Link:
    """A link of a chain."""

    next: object


def test_a_deep_dataclass_without_tensors_is_passed_by_reference():
    chain = None
    for _ in range(sys.getrecursionlimit()):
        chain = Link(chain)
    leaves = InputLeaves()
    node = leaves.flatten(chain, 0, "value")
    (found,) = node.unflatten(1, {})
    assert found is chain
