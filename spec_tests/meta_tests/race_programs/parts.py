"""Parts of one piece of memory."""

import torch
from torch import Tensor

from .rows import NUMBERS, current, empty, pinned, program, send, stream


@program("model")
def halves_of_one_tensor_are_filled_on_two_streams(right: bool) -> Tensor:
    one, other, result = stream(0), stream(0), empty(0)
    for side in (one, other):
        side.wait_stream(current(0))
    wrong = torch.tensor([1.0, 2.0, 9.0]).pin_memory()
    extent = 2 if right else 3
    with one:
        result[:extent].copy_(wrong[:extent], non_blocking=True)
    with other:
        result[2:].copy_(pinned()[2:], non_blocking=True)
    return _joined(result, one, other)


@program("model")
def columns_of_one_matrix_are_filled_on_two_streams(right: bool) -> Tensor:
    one, other, matrix = stream(0), stream(0), empty(0, 2, 2)
    for side in (one, other):
        side.wait_stream(current(0))
    with one:
        wrong = torch.tensor([[1.0, 9.0], [3.0, 9.0]]).pin_memory()
        columns = slice(0, 1 if right else 2)
        matrix[:, columns].copy_(wrong[:, columns], non_blocking=True)
    with other:
        matrix[:, 1].copy_(pinned()[1::2], non_blocking=True)
    return _joined(matrix, one, other).flatten()


@program("model", late=False)
def two_streams_may_read_the_same_bytes(right: bool) -> Tensor:
    data, one, other = send(0), stream(0), stream(0)
    for side in (one, other):
        side.wait_stream(current(0))
    with one:
        result = data * 1
    with other:
        data * 1 if right else data.mul_(1)
    data.record_stream(one)
    data.record_stream(other)
    one.synchronize()
    return result


@program("model")
def a_view_is_its_base_s_memory(right: bool) -> Tensor:
    base, data, side = empty(0, 8), send(0), stream(0)
    side.wait_stream(current(0))
    with side:
        rest = base[6 if right else 5 :]
        rest.copy_(torch.zeros(3).pin_memory()[: len(rest)], non_blocking=True)
    base[2:6].copy_(data)
    current(0).wait_stream(side)
    return base[2:6]


@program("model")
def what_one_stream_reads_no_other_overwrites(right: bool) -> Tensor:
    data, result, side = send(0), empty(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(data)
    if right:
        current(0).wait_stream(side)
    data.fill_(NUMBERS[0])
    current(0).wait_stream(side)
    return result


@program("model")
def the_last_of_two_writers_waits_for_the_first(right: bool) -> Tensor:
    result, side = empty(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(torch.zeros(4).pin_memory(), non_blocking=True)
    if right:
        current(0).wait_stream(side)
    result.copy_(pinned(), non_blocking=True)
    current(0).wait_stream(side)
    return result


@program("model", late=False)
def parts_of_complex_numbers_are_filled_on_two_streams(right: bool) -> Tensor:
    numbers = empty(0, 4, 2)
    one, other, both = stream(0), stream(0), torch.view_as_complex(numbers)
    for side in (one, other):
        side.wait_stream(current(0))
    with one:
        both.real.copy_(pinned(), non_blocking=True)
    with other:
        (both.imag if right else both.real).copy_(pinned(), non_blocking=True)
    return _joined(both.real, one, other)


@program("model", late=False)
def every_second_number_is_filled_on_two_streams(right: bool) -> Tensor:
    one, other, numbers = stream(0), stream(0), empty(0, 8)
    for side in (one, other):
        side.wait_stream(current(0))
    with one:
        numbers[::2].copy_(pinned(), non_blocking=True)
    with other:
        rest = numbers[1::2] if right else numbers[::3]
        rest.copy_(torch.zeros(4).pin_memory()[: len(rest)], non_blocking=True)
    return _joined(numbers[::2], one, other)


@program("model")
def an_operator_on_many_tensors_waits_for_the_readers_of_all(right: bool) -> Tensor:
    tensors, result, side = [send(0), send(0)], empty(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(tensors[1])
    tensors[1].record_stream(side)
    if right:
        current(0).wait_stream(side)
    torch._foreach_zero_(tensors)
    return _joined(result, side)


@program("model")
def an_operator_that_fills_a_tensor_waits_for_its_writer(right: bool) -> Tensor:
    data, result, side = send(0), empty(0), stream(0)
    side.wait_stream(current(0))
    with side:
        result.copy_(torch.zeros(4).pin_memory(), non_blocking=True)
    if right:
        current(0).wait_stream(side)
    torch.add(data, 0, out=result)
    return _joined(result, side)


def _joined(result: Tensor, *streams: torch.Stream) -> Tensor:
    for side in streams:
        current(0).wait_stream(side)
    return result
