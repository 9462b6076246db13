"""Construction, compilation and caching of the replicas of a module tree."""

from .build import ReplicaMap, build_replicas
from .compiled import has_compiled_code
from .frozen import FrozenCopies, can_be_kept
from .leaves import ReplicaLeaves
from .module_tree import Tree, check_source, collect_tree, is_script_module
from .registry import (
    ReplicaCacheBlock,
    find_frozen_copies,
    find_replica_cache,
    free_frozen_copies,
)
from .separate_chunks import SeparateChunks
