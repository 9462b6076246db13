"""Worker threads, the thread state that replicas inherit, and exceptions of replicas."""

from .exceptions import CapturedError, capture, format_error, raise_rebuilt, reraise
from .group import ModuleGroup, module_group
from .pool import PendingCall, start
from .state import call_in, clear_old_casts, thread_states
