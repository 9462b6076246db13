"""Worker threads, the thread state that replicas inherit, and exceptions of replicas."""

from .exceptions import CapturedError, capture, format_error, raise_rebuilt, reraise
from .locals import isolate_locals
from .pool import start
from .sequential import run_sequentially
from .state import call_in, clear_old_casts, is_fully_transferable, thread_states
