"""Nested values: flatten inputs and outputs into their leaves, and unflatten them.

It imports torch only.
"""

from .containers import Leaf, Node, Pieces, is_named_tuple, write_trail
from .inputs import Copied, Split, Survey, unmarked
from .markers import SplitAlong, Whole
from .outputs import Joined, Outputs
from .packed_sequence import cut_packed, join_packed
from .traversal import Level, descend

__all__ = [
    "Copied",
    "Joined",
    "Leaf",
    "Level",
    "Node",
    "Outputs",
    "Pieces",
    "Split",
    "SplitAlong",
    "Survey",
    "Whole",
    "cut_packed",
    "descend",
    "is_named_tuple",
    "join_packed",
    "unmarked",
    "write_trail",
]
