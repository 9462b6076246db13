"""Records the streams on which a call makes copies, and the current streams and device."""

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
    """Records, for each copy to a device inside the block, the current stream of that device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # unannotated in PyTorch
        #: The stream of each copy, in order.
        self.streams: list[torch.Stream] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in _COPIES:
            self._record_stream(result if result is not None else args[0])
        return result

    def _record_stream(self, result: object) -> None:
        copies = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if copies and copies[0].device.type != "cpu":
            self.streams.append(torch.accelerator.current_stream(copies[0].device))


class CopyPause(CopyLog):  # type: ignore[no-untyped-call]  # unannotated in PyTorch
    """Calls ``pause`` after the first copy inside the block."""

    def __init__(self, pause: Callable[[], object]) -> None:
        super().__init__()
        self._pause = pause

    def _record_stream(self, result: object) -> None:
        super()._record_stream(result)
        if len(self.streams) == 1:
            self._pause()


class CopyDelay(TorchDispatchMode):  # type: ignore[no-untyped-call]  # unannotated in PyTorch
    """Queues work of some milliseconds on the devices of each copy inside the block."""

    def __init__(self, milliseconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # unannotated in PyTorch
        self._milliseconds = milliseconds

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.overloadpacket in _COPIES:
            leaves = tree_leaves((args, kwargs))
            found = [leaf.device if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            for device in {each for each in found if isinstance(each, torch.device)}:
                if device.type != "cpu":
                    queue_work(device, self._milliseconds)
        return func(*args, **(kwargs or {}))


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
