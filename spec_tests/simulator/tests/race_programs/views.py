"""Accesses of two streams to views of one allocation."""

import torch
from torch import Tensor

from .program import (
    NUMBERS,
    copy_to,
    current_stream,
    empty,
    new_stream,
    pinned_tensor,
    race_program,
)


@race_program("model")
def two_streams_write_different_columns(correct: bool) -> Tensor:
    first, second, matrix = new_stream(0), new_stream(0), empty(0, 2, 2)
    for side in (first, second):
        side.wait_stream(current_stream(0))
    with first:
        wrong = torch.tensor([[1.0, 9.0], [3.0, 9.0]]).pin_memory()
        columns = slice(0, 1 if correct else 2)
        matrix[:, columns].copy_(wrong[:, columns], non_blocking=True)
    with second:
        matrix[:, 1].copy_(pinned_tensor()[1::2], non_blocking=True)
    return _wait_for_streams(matrix, first, second).flatten()


@race_program("model", late_copies=False)
def two_streams_read_same_bytes(correct: bool) -> Tensor:
    data, first, second = copy_to(0), new_stream(0), new_stream(0)
    for side in (first, second):
        side.wait_stream(current_stream(0))
    with first:
        result = data * 1
    with second:
        data * 1 if correct else data.mul_(1)
    data.record_stream(first)
    data.record_stream(second)
    first.synchronize()
    return result


@race_program("model", late_copies=False)
def write_to_a_part_keeps_the_record_of_the_rest(correct: bool) -> Tensor:
    result, side = empty(0), new_stream(0)
    side.wait_stream(current_stream(0))
    with side:
        result.copy_(pinned_tensor(), non_blocking=True)
        result[1:2].fill_(NUMBERS[1])
    if correct:
        current_stream(0).wait_stream(side)
    last = result[2:] * 1
    current_stream(0).wait_stream(side)
    return torch.cat([result[:2], last])


@race_program("model")
def foreach_operator_waits_for_readers_of_all_tensors(correct: bool) -> Tensor:
    tensors, result, side = [copy_to(0), copy_to(0)], empty(0), new_stream(0)
    side.wait_stream(current_stream(0))
    with side:
        result.copy_(tensors[1])
    tensors[1].record_stream(side)
    if correct:
        current_stream(0).wait_stream(side)
    torch._foreach_zero_(tensors)
    return _wait_for_streams(result, side)


def _wait_for_streams(result: Tensor, *streams: torch.Stream) -> Tensor:
    for side in streams:
        current_stream(0).wait_stream(side)
    return result
