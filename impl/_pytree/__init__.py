"""Pytrees: nested inputs and outputs are flattened into leaves, and unflattened."""

from .containers import KeyPath, Leaf, Node, Pieces, format_path, is_named_tuple, is_tensor_dict
from .inputs import CopiedLeaf, InputLeaves, SplitLeaf, remove_markers
from .markers import SplitAlong, Whole
from .outputs import GatheredLeaf, OutputLeaves
from .packed_sequence import PackedChunk, cat_packed, split_packed
