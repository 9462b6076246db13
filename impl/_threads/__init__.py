"""Worker threads, the state that replicas take over, and exceptions that cross threads.

It imports ``_compat``, ``_device`` and ``_pytree``.
"""

from .exceptions import Failure, account, attempt, raise_rebuilt, reraise
from .locals import use_fresh_locals
from .pool import start
from .sequential import run_sequentially
from .state import call_in, thread_states, travels_whole

__all__ = [
    "Failure",
    "account",
    "attempt",
    "call_in",
    "raise_rebuilt",
    "reraise",
    "run_sequentially",
    "start",
    "thread_states",
    "travels_whole",
    "use_fresh_locals",
]
