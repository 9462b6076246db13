"""Records the streams on which a call makes copies, and the current streams and device."""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spec_tests.machine.devices import Topology, queue_work

#: The operators that may copy between devices.
_COPIES = frozenset(
    {
        torch.ops.aten._to_copy,
        torch.ops.aten.copy_,
        torch.ops.aten._foreach_copy_,
        torch.ops.aten._foreach_copy,
    }
)


class CopyLog(TorchDispatchMode):  # type: ignore[no-untyped-call]  # unannotated in PyTorch
    """Records, for each copy to a device inside the block, the current stream of that device.

    Copies inside operators of other libraries, as of ``torch.library.custom_op``, are recorded.

    Args:
        pause: A function to call after the first copy.
        delay: Milliseconds of work to queue on the devices of each copy, before it.
    """

    def __init__(self, pause: Callable[[], object] = object, delay: float = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # unannotated in PyTorch
        self._pause, self._delay = pause, delay
        #: The stream of each copy, in order.
        self.streams: list[torch.Stream] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if (keys := _keys_of_kernel(func, (args, kwargs))) is not None:
            with self:  # A mode does not see the operators that its own handler calls.
                return func.redispatch(keys, *args, **(kwargs or {}))
        is_copy = func.overloadpacket in _COPIES
        for device in _devices_of((args, kwargs)) if is_copy and self._delay else ():
            queue_work(device, self._delay)
        result = func(*args, **(kwargs or {}))
        devices = _devices_of(result if result is not None else args[0]) if is_copy else []
        if devices:
            self.streams.append(torch.accelerator.current_stream(devices[0]))
            if len(self.streams) == 1:
                self._pause()
        return result


def _keys_of_kernel(func: Any, arguments: object) -> torch._C.DispatchKeySet | None:
    """Return the dispatch keys of the kernel of ``func``; None if it calls no other operators."""
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
    if not tensors or (func.namespace == "aten" and func.overloadpacket is not torch.ops.aten.to):
        return None
    keys = functools.reduce(operator.or_, map(torch._C._dispatch_keys, tensors))
    # Autograd has run before this mode.
    return keys & torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.ADInplaceOrView)


def _devices_of(value: object) -> list[torch.device]:
    """Return the accelerators in ``value``, as devices or as those of tensors."""
    leaves = tree_leaves(value)
    found = [leaf.device if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    devices = dict.fromkeys(each for each in found if isinstance(each, torch.device))
    return [each for each in devices if each.type != "cpu"]


def streams_of(call: Callable[[], object]) -> list[torch.Stream]:
    """Return the stream of each copy that ``call`` makes, in order."""
    log = CopyLog()
    with log:
        call()
    return log.streams


def current_device_and_streams(topology: Topology) -> tuple[int, list[int]]:
    """Return the current device's ordinal, and the id of each device's current stream."""
    streams = [torch.accelerator.current_stream(device) for device in topology.devices]
    ids = [stream.stream_id for stream in streams]
    return torch.accelerator.current_device_index(), ids
