"""The number of intra-op threads of one thread.

``torch.set_num_threads`` sets the number of the calling thread, and of all threads that start
later. OpenMP and MKL have functions that set it for the calling thread only.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from ._torch_private import library_path


def can_set_for_one_thread() -> bool:
    """Return whether :func:`set_num_threads` leaves the number of later threads unchanged."""
    return _find_setters() is not None


def set_num_threads(count: int) -> None:
    """Set the number of threads that an operator of this thread may use on the CPU.

    If the functions of OpenMP and MKL are not found, threads that start later get it, too.
    """
    # PyTorch sets the number of a new thread when the number is first used. Read it, so that this
    # does not happen after another number was set.
    if torch.get_num_threads() != count:
        for set_count in _find_setters() or [torch.set_num_threads]:
            set_count(count)


@cache
def _find_setters() -> list[Callable[[int], object]] | None:
    """Return the functions that set the number of this thread, or None if they are not found."""
    try:
        # PyTorch also uses the first OpenMP of the process, such as one in LD_PRELOAD.
        setters: list[Callable[[int], object]] = [ctypes.CDLL(None).omp_set_num_threads]
        if torch.backends.mkl.is_available():  # type: ignore[no-untyped-call] # of PyTorch
            # MKL stops to follow OpenMP in a thread in which PyTorch has set its number.
            setters.append(ctypes.CDLL(library_path()).MKL_Set_Num_Threads_Local)
    except (AttributeError, OSError, TypeError):  # On Windows, CDLL raises TypeError for None.
        return None
    return setters if _is_used_by_torch(setters[0]) else None


def _is_used_by_torch(set_openmp_threads: Callable[[int], object]) -> bool:
    before = torch.get_num_threads()
    set_openmp_threads(before + 1)
    is_used = torch.get_num_threads() == before + 1
    set_openmp_threads(before)
    return is_used
