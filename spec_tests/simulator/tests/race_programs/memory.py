"""Memory that is freed while another stream may still use it."""

import torch
from torch import Tensor

from .program import copy_to, current_stream, empty, new_stream, pinned_tensor, race_program


@race_program("record_stream")
def memory_is_recorded_on_the_stream_that_reads_it(correct: bool) -> Tensor:
    data, side, unused = copy_to(0), new_stream(0), new_stream(0)
    result = _read_on(side, data)
    data.record_stream(side if correct else unused)
    del data
    return _synchronize_and_return(side, result)


@race_program("record_stream")
def memory_is_freed_after_host_waits_for_the_reader(correct: bool) -> Tensor:
    data, side = copy_to(0), new_stream(0)
    result = _read_on(side, data)
    if correct:
        side.synchronize()
    del data
    return _synchronize_and_return(side, result)


@race_program("record_stream")
def resize_frees_memory(correct: bool) -> Tensor:
    data, side = copy_to(0), new_stream(0)
    result = _read_on(side, data)
    if correct:
        current_stream(0).wait_stream(side)
    data.resize_(64)
    return _synchronize_and_return(side, result)


@race_program("streams", late_copies=False)
def first_use_of_memory_waits_for_earlier_work_of_its_stream(correct: bool) -> Tensor:
    # On CUDA, ``empty`` may return the memory of the freed tensor while the copy to it still runs.
    freed = copy_to(0)
    del freed
    result, side = empty(0), new_stream(0)
    if correct:
        side.wait_stream(current_stream(0))
    with side:
        result.copy_(pinned_tensor(), non_blocking=True)
    result.record_stream(side)
    return _synchronize_and_return(side, result)


def _read_on(side: torch.Stream, data: Tensor) -> Tensor:
    """Copy ``data`` on the stream ``side``, after the work of the current stream."""
    side.wait_stream(current_stream(0))
    with side:
        return empty(0).copy_(data)


def _synchronize_and_return(side: torch.Stream, result: Tensor) -> Tensor:
    side.synchronize()
    return result
