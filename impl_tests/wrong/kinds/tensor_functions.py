"""Kinds for the functions on tensors and containers: comm, functions, scatter and gather."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from impl_tests.wrong.calls import Call, map_tensors, tensors_in
from impl_tests.wrong.kinds.module_functions import pass_through
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.results import differ

__all__ = ["KINDS"]

KINDS = Registry()


@KINDS.around
def outputs_written(call: Call) -> Any:
    """Write other values to ``out`` after the call."""
    result = call.run()
    with torch.no_grad():
        for tensor in tensors_in(call.arguments.get("out")):
            tensor.detach().copy_(differ(tensor.detach()))
    return result


@KINDS.around
def missing_streams_are_current(call: Call) -> Any:
    """Copy a chunk whose stream is None on the current stream of its device."""
    streams, devices = call.arguments.get("streams"), call.arguments.get("devices")
    if streams is None or devices is None:
        return call.run()
    found = [
        torch.accelerator.current_stream(device) if stream is None else stream
        for stream, device in zip(streams, devices, strict=False)
    ]
    return call.with_arguments(streams=found).run()


@KINDS.around
def all_devices_checked(call: Call) -> Any:
    """Refuse a device that does not exist, also if it gets no chunk."""
    for name in ("devices", "target_gpus"):
        for device in call.arguments.get(name) or ():
            is_ordinal = isinstance(device, int)
            torch.empty(0, device=f"sim:{device}" if is_ordinal else device)
    return call.run()


@KINDS.around
def copied_on_the_current_stream(call: Call) -> Any:
    """Copy the arguments on the CPU to the first device on its current stream."""
    device = torch.accelerator.current_accelerator()
    return call.mapped(lambda t: t.to(device) if t.device.type == "cpu" else t).run()


@KINDS.around
def backward_with_device_0_current(call: Call) -> Any:
    """Make device 0 current in the backward of the operations that computed the arguments."""
    for tensor in call.tensors():
        if tensor.grad_fn is not None:
            tensor.grad_fn.register_prehook(lambda _: torch.accelerator.set_device_index(0))
    return call.run()


@KINDS.around
def single_tensor_returned(call: Call) -> Any:
    """Return the only tensor among the arguments in place of an equal result."""
    result, tensors = call.run(), call.tensors()
    if len(tensors) == 1 and tensors[0].shape == result.shape:
        return tensors[0] if tensors[0].device == result.device else result
    return result


@KINDS.result
def versions_shared(result: Any) -> Any:
    """Return tensors in one buffer for each list, with one version counter."""
    if isinstance(result[0], Tensor):
        return type(result)(_in_one_buffer(result))
    return [result[0], *map(_in_one_buffer, result[1:])]


def _in_one_buffer(tensors: Any) -> list[Tensor]:
    buffer = torch.cat([tensor.reshape(-1) for tensor in tensors])
    parts = torch.split(buffer, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


@KINDS.result
def of_one_function(result: Any) -> Any:
    """Return views from one function, which refuse changes in place."""
    return pass_through(*result)


@KINDS.result
def deepcopied(result: Any) -> Any:
    """Return a deep copy."""
    return copy.deepcopy(result)


@KINDS.result
def none_listed(result: Any) -> Any:
    """Return a list with None in place of None, at any depth."""
    return pytree.tree_map(lambda leaf: [None] if leaf is None else leaf, result)


@KINDS.around
def one_result_per_device(call: Call) -> Any:
    """Repeat the last result until there are as many as devices."""
    result, count = call.run(), len(call.arguments["target_gpus"])
    return type(result)([*result, *[result[-1]] * (count - len(result))]) if result else result


@KINDS.around
def containers_shared(call: Call) -> Any:
    """Return the inputs themselves for each device, not copies, if they hold no tensor."""
    result, inputs = call.run(), call.arguments["inputs"]
    return result if tensors_in(inputs) else type(result)([inputs] * len(result))


@KINDS.around
def class_of_the_input_kept(call: Call) -> Any:
    """Convert the first member of each result to the class of the first input."""
    result, first = call.run(), next(iter(call.arguments["inputs"]), None)
    if not isinstance(first, (tuple, list)) or isinstance(result, tuple):
        return result
    try:
        return [type(part)([type(first)(part[0]), *part[1:]]) for part in result]
    except TypeError:
        return result


@KINDS.result
def keyword_arguments_missing(result: Any) -> Any:
    """Leave out the last replica's keyword arguments."""
    return result[0], result[1][:-1]


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
def single_elements_kept(call: Call) -> Any:
    """Return vectors of one element each on the device of the first."""
    result, outputs = call.run(), call.tensors()
    if isinstance(result, Tensor) and all(tensor.shape == (1,) for tensor in outputs):
        return result.to(outputs[0].device)
    return result


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
