"""Compatibility with PyTorch and Python: private names, compilation, GC, forks."""

from .compiler_private import (
    compile_only_inlined,
    compiled_module,
    compiler_of_module,
    compiler_of_wrapper,
    exclude_from_compilation,
    is_compilation_loaded,
    is_compiled,
)
from .forks import register_fork_handler
from .gc_pause import pause_gc
from .recording import (
    ProfilerSpan,
    break_graph,
    check_not_traced,
    is_movable,
    is_recorded,
    move_tensors,
)
from .settings import call_with_setting
from .torch_private import (
    BatchNorm,
    add_lists,
    allow_inplace_changes,
    base_of_view,
    call_after_backward,
    call_with_inference_mode,
    calls_torch_functions,
    copy_context_of_backward,
    flatten,
    function_mode_count,
    has_accumulate_hooks,
    has_dual_level,
    has_hooks,
    has_modes_hooks_or_transforms,
    has_modes_or_transforms,
    has_registration_hooks,
    is_needed_in_backward,
    is_torchscript_enabled,
    module_has_hooks,
    next_sequence_nr,
    pytree_node,
    run_first_in_backward,
    sparse_parts,
    track_original_views,
    unnumbered_default_device,
    use_plain_operators,
    use_unrecorded_views,
    version_counters,
    was_created_since,
)
