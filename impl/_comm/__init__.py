"""Splits, concatenations, copies and sums of tensors on several devices."""

from .broadcast import attached_copies, detached_copies
from .buckets import DEFAULT_BUFFER_SIZE, REPLICA_BUFFER_SIZE, plan_buckets
from .checks import (
    as_buffer_size,
    check_broadcast_outputs,
    check_chunk_count,
    check_gather_inputs,
    check_gather_output,
    check_gradient_layout,
    check_scatter_outputs,
    check_sum_buffer_size,
)
from .chunk_sizes import check_weights, chunk_lengths
from .chunks import SplitTensor, move_from_cpu, split_and_move
from .copy import row_major_copy, tensor_dict_to_device, to_device, wrapper_to_device
from .grad_mode import needs_grad, without_grad
from .reduce import reduce_lists, reduce_tensors
from .split_cat import cat_on_device, cat_shape, copy_into_slices, is_wrapper, split_into_views
from .stream_copy import Streams, check_streams, chunks_to_devices, copy_chunks
from .subclasses import (
    PLAIN_CLASSES,
    copy_attributes,
    detached,
    with_class_and_attributes,
)
