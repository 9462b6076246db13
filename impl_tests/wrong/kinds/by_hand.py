"""Wrong implementations, written by hand over public names, for single clauses."""

import re
from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import Call, map_tensors
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


@KINDS.around
def balanced_chunks(call: Call) -> Any:
    """Split into chunks whose sizes differ by one at most, as ``torch.tensor_split`` does."""
    if call.arguments.get("chunk_sizes") is not None or call.arguments.get("out") is not None:
        return call.run()
    sequences = [
        name for name, value in call.arguments.items() if isinstance(value, (list, tuple))
    ]
    tensors = [value for value in call.arguments.values() if isinstance(value, Tensor)]
    if not tensors:
        return call.run()
    extent = tensors[0].shape[call.arguments.get("dim", 0)]
    chunks = torch.empty(extent).tensor_split(len(call.arguments[sequences[0]]))
    return call.with_arguments(chunk_sizes=[len(chunk) for chunk in chunks]).run()


@KINDS.around
def memory_errors_changed(call: Call) -> Any:
    """Raise a plain RuntimeError if a device has no memory left."""
    try:
        return call.run()
    except torch.OutOfMemoryError as error:
        raise RuntimeError(str(error)) from None


@KINDS.around
def zeros_changed(call: Call) -> Any:
    """Pass ones in place of tensors of zeros."""
    return call.mapped(lambda tensor: tensor if tensor.any() else torch.ones_like(tensor)).run()


@KINDS.around
def outputs_of_any_shape(call: Call) -> Any:
    """Return an output that has another shape than the result."""
    out = call.arguments.get("out")
    try:
        parts = [part.to("meta") for part in call.arguments["tensors"]]
        expected = torch.cat(parts, call.arguments.get("dim", 0)).shape
    except Exception:  # another argument is wrong
        return call.run()
    return call.run() if out is None or out.shape == expected else out


@KINDS.around
def interrupts_changed(call: Call) -> Any:
    """Raise a RuntimeError in place of an exception that is no `Exception`."""
    try:
        return call.run()
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(str(error)) from error


@KINDS.around
def key_errors_changed(call: Call) -> Any:
    """Raise a plain KeyError, whose text has escaped newlines, in place of one of a subclass."""
    try:
        return call.run()
    except KeyError as error:
        raise KeyError(str(error)) from error.__cause__


@KINDS.around
def devices_quoted_with_out(call: Call) -> Any:
    """Put the name of a device in the text of an error in quotes, if there is an output."""
    try:
        return call.run()
    except RuntimeError as error:
        if call.arguments.get("out") is not None:
            error.args = (re.sub(r"(?<=has device )(\S+)", r"'\1'", str(error)),)
        raise


@KINDS.around
def streams_unrecorded(call: Call) -> Any:
    """Copy the result on a side stream, which may reuse the memory before it has been read."""
    return map_tensors(_copy_on_side_stream, call.run())


_SIDE_STREAMS: dict[torch.device, torch.Stream] = {}


def _copy_on_side_stream(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor
    user = torch.accelerator.current_stream(tensor.device)
    side = _SIDE_STREAMS.setdefault(tensor.device, torch.Stream(tensor.device))
    side.wait_stream(user)
    tensor.record_stream(side)
    with side:
        found = tensor.clone()
    user.wait_stream(side)
    return found


@KINDS.around
def single_elements_kept(call: Call) -> Any:
    """Return vectors of one element each on the device of the first."""
    result, outputs = call.run(), call.tensors()
    if isinstance(result, Tensor) and all(tensor.shape == (1,) for tensor in outputs):
        return result.to(outputs[0].device)
    return result


@KINDS.around
def keyword_arguments_added(call: Call) -> Any:
    """Pass one keyword argument to each module if the call has no ``kwargs_tup``."""
    if call.arguments.get("kwargs_tup") is not None:
        return call.run()
    return call.with_arguments(kwargs_tup=[{"perturbed": 1} for _ in call.modules()]).run()


@KINDS.around
def many_modules_refused(call: Call) -> Any:
    """Refuse more than 99 modules."""
    if len(call.arguments["modules"]) > 99:
        raise RuntimeError("perturbed")
    return call.run()
