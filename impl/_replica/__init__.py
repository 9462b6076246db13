"""A module tree and its replicas: built, compiled and cached.

It imports ``_comm``, ``_threads`` and what those import.
"""

from .build import Twins, build_replicas
from .cache import hold_of, use_hold
from .compiled import has_compiled_code
from .module_tree import Tree, check_source, collect_tree

__all__ = [
    "Tree",
    "Twins",
    "build_replicas",
    "check_source",
    "collect_tree",
    "has_compiled_code",
    "hold_of",
    "use_hold",
]
