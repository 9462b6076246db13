"""impl._thread_locals: the number of thread-local values."""

import threading

from impl._thread_locals import SINGLE_USE_THREADS, count_locals
from spec_tests.machine.devices import not_run


def test_count_locals_counts_a_new_local_until_it_is_deleted():
    if SINGLE_USE_THREADS:
        not_run("a free-threaded Python cannot count locals without stopping all threads")
    before, local = count_locals(), threading.local()
    local.value = True
    assert count_locals() > before
    del local
    assert count_locals() == before
