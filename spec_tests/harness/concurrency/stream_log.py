"""The streams that a call uses for copies, and the current streams and device."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spec_tests.harness.environment.topology import Topology

_COPIES = frozenset(
    {
        torch.ops.aten._to_copy,
        torch.ops.aten.copy_,
        torch.ops.aten._foreach_copy_,
        torch.ops.aten._foreach_copy,
    }
)


class CopyLog(TorchDispatchMode):  # type: ignore[no-untyped-call]  # unannotated in PyTorch
    """Records the current stream of the receiving device at every copy inside the block."""

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
            self._note(result if result is not None else args[0])
        return result

    def _note(self, written: object) -> None:
        found = [leaf for leaf in tree_leaves(written) if isinstance(leaf, Tensor)]
        if found and found[0].device.type != "cpu":
            self.streams.append(torch.accelerator.current_stream(found[0].device))


class CopyPause(CopyLog):  # type: ignore[no-untyped-call]  # unannotated in PyTorch
    """Calls ``pause`` after the first copy inside the block."""

    def __init__(self, pause: Callable[[], object]) -> None:
        super().__init__()
        self._pause = pause

    def _note(self, written: object) -> None:
        super()._note(written)
        if len(self.streams) == 1:
            self._pause()


def streams_of(call: Callable[[], object]) -> list[torch.Stream]:
    """Return the stream of each copy that ``call`` makes, in order."""
    log = CopyLog()
    with log:
        call()
    return log.streams


def current_device_and_streams(topology: Topology) -> tuple[int, list[int]]:
    """Return the current device's ordinal, and the current stream's id of each device."""
    streams = [torch.accelerator.current_stream(device) for device in topology.devices]
    ids = [stream.stream_id for stream in streams]
    return torch.accelerator.current_device_index(), ids
