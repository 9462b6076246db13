"""Memory that goes back to its allocator while another stream may still use it."""

import torch
from torch import Tensor

from .rows import current, device, empty, in_a_thread, pinned, program, send, stream


@program("record_stream")
def memory_that_a_side_stream_reads_is_recorded_there(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result = empty(0).copy_(data)
    if right:
        data.record_stream(side)
    del data
    return _read_on(side, result)


@program("record_stream")
def memory_of_a_side_stream_is_recorded_where_it_is_used(right: bool) -> Tensor:
    side, result = stream(0), empty(0)
    with side:
        data = send(0)
    current(0).wait_stream(side)
    result.copy_(data)
    if right:
        data.record_stream(current(0))
    del data
    return result


@program("record_stream")
def memory_is_recorded_on_the_stream_that_uses_it(right: bool) -> Tensor:
    data, side, other = send(0), stream(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result = empty(0).copy_(data)
    data.record_stream(side if right else other)
    del data
    return _read_on(side, result)


@program("record_stream")
def memory_may_go_once_its_own_stream_has_waited(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result = empty(0).copy_(data)
    if right:
        current(0).wait_stream(side)
    del data
    return _read_on(side, result)


@program("record_stream")
def memory_may_go_once_the_host_has_waited(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result = empty(0).copy_(data)
    if right:
        side.synchronize()
    del data
    return _read_on(side, result)


@program("record_stream")
def memory_of_the_stream_that_uses_it_may_go_at_once(right: bool) -> Tensor:
    side = stream(0)
    with current(0) if not right else side:
        data = send(0)
    side.wait_stream(current(0))
    with side:
        result = empty(0).copy_(data)
    del data
    return _read_on(side, result)


@program("record_stream")
def the_source_of_a_peer_copy_may_go_where_its_stream_copies(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    with current(0) if right else side:
        received = data.to(device(1), non_blocking=True)
    del data
    return received


@program("views")
def memory_that_is_recorded_for_one_view_is_recorded_for_all(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result = empty(0).copy_(data)
    if right:
        data[:1].record_stream(side)
    del data
    return _read_on(side, result)


@program("record_stream")
def memory_that_is_resized_goes_back_too(right: bool) -> Tensor:
    data, side = send(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result = empty(0).copy_(data)
    if right:
        current(0).wait_stream(side)
    data.resize_(64)
    return _read_on(side, result)


@program("record_stream")
def a_batch_that_is_fetched_ahead_is_recorded_where_it_is_used(right: bool) -> Tensor:
    side, result = stream(0), empty(0)
    for _ in range(3):
        with side:
            batch = send(0)
        current(0).wait_stream(side)
        result.copy_(batch)
        if right:
            batch.record_stream(current(0))
        del batch
    return result


@program("streams", late=False)
def fresh_memory_waits_for_what_its_stream_was_given(right: bool) -> Tensor:
    # It may be that of the tensor that has gone, to which the numbers are still on their way.
    gone = send(0)
    del gone
    result, side = empty(0), stream(0)
    if right:
        side.wait_stream(current(0))
    with side:
        result.copy_(pinned(), non_blocking=True)
    result.record_stream(side)
    return _read_on(side, result)


@program("record_stream")
def memory_goes_back_to_its_stream_whichever_is_current(right: bool) -> Tensor:
    side, result = stream(0), empty(0)
    with side if right else current(0):
        data = send(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(data)
        del data
    return _read_on(side, result)


@program("record_stream")
def memory_that_another_thread_drops_is_recorded_too(right: bool) -> Tensor:
    kept, side, result = [send(0)], stream(0), empty(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(kept[0])
    if right:
        kept[0].record_stream(side)
    in_a_thread(kept.clear)
    return _read_on(side, result)


@program("record_stream")
def memory_whose_tensor_gets_another_goes_back(right: bool) -> Tensor:
    data, side, result = send(0), stream(0), empty(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(data)
    if right:
        data.record_stream(side)
    data.data = empty(0)
    return _read_on(side, result)


def _read_on(side: torch.Stream, result: Tensor) -> Tensor:
    side.synchronize()
    return result
