"""Construction, compilation and caching of the replicas of a module tree."""

from .build import ReplicaMap, build_replicas
from .compiled import has_compiled_code
from .held_modules import device_note
from .module_tree import Tree, check_source, collect_tree, is_script_module
from .separate_chunks import SeparateChunks
