"""Worker threads, the thread state that replicas inherit, and exceptions of replicas."""

from .exceptions import CapturedError, capture, format_error, raise_rebuilt, reraise
from .group import ModuleGroup, module_group
from .locals import isolate_locals
from .pool import PendingCall, start
from .sequential import run_sequentially
from .state import call_in, can_workers_inherit_state, clear_old_casts, thread_states
