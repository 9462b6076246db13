"""Tensors on several devices: split, concatenate, copy and reduce them.

It imports ``_compat``, ``_device`` and ``_pytree``.
"""

from .broadcast import attached_copies, detached_copies
from .buckets import DEFAULT_BUFFER_SIZE, REPLICA_BUFFER_SIZE
from .checks import (
    check_broadcast_outputs,
    check_chunk_count,
    check_gather_inputs,
    check_gather_output,
    check_scatter_outputs,
)
from .chunk_sizes import check_weights, chunk_lengths
from .copy import row_major_copy, send, send_wrapper
from .reduce import reduce_lists, reduce_tensors
from .split_cat import copy_into_slices, cut, is_wrapper, join, joined_shape
from .stream_copy import Streams, check_streams, copy_chunks, send_chunks

__all__ = [
    "DEFAULT_BUFFER_SIZE",
    "REPLICA_BUFFER_SIZE",
    "Streams",
    "attached_copies",
    "check_broadcast_outputs",
    "check_chunk_count",
    "check_gather_inputs",
    "check_gather_output",
    "check_scatter_outputs",
    "check_streams",
    "check_weights",
    "chunk_lengths",
    "copy_chunks",
    "copy_into_slices",
    "cut",
    "detached_copies",
    "is_wrapper",
    "join",
    "joined_shape",
    "reduce_lists",
    "reduce_tensors",
    "row_major_copy",
    "send",
    "send_chunks",
    "send_wrapper",
]
