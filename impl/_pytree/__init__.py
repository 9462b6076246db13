"""Nested values: flatten inputs and outputs into their leaves, and unflatten them.

It imports torch only.
"""

from .containers import Leaf, Node, Pieces, format_path, is_named_tuple
from .inputs import CopiedLeaf, InputLeaves, SplitLeaf, remove_markers
from .markers import SplitAlong, Whole
from .outputs import GatheredLeaf, OutputLeaves
from .packed_sequence import cat_packed, split_packed
from .traversal import Level, traverse

__all__ = [
    "CopiedLeaf",
    "GatheredLeaf",
    "InputLeaves",
    "Leaf",
    "Level",
    "Node",
    "OutputLeaves",
    "Pieces",
    "SplitAlong",
    "SplitLeaf",
    "Whole",
    "cat_packed",
    "format_path",
    "is_named_tuple",
    "remove_markers",
    "split_packed",
    "traverse",
]
