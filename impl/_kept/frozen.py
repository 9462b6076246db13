"""Copies of frozen parameters that are kept between the forwards of a wrapper.

A parameter is frozen if it does not require grad. ``k`` is the number of devices.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._bucket_copies import detached_copies
from .._copies import detached
from .._torch_private import call_with_inference_mode
from .changes import find_comparable
from .copies import CopiedTensors, DeviceStreams, KeptCopies, find_device_streams


class FrozenCopies(KeptCopies[CopiedTensors]):
    """The copies of the frozen parameters of one wrapper: at most one for each replica."""

    def copy(
        self, parameters: Sequence[Tensor], targets: Sequence[torch.device], detach: bool
    ) -> tuple[Sequence[Tensor], list[list[Tensor]]]:
        """Return the parameters whose copies are kept, and ``k`` lists of their copies.

        The first list has the parameters themselves, detached from their history unless
        ``detach`` is true. The other lists have detached tensors that share the memory of the kept
        copies. The parameters are copied if one of them has changed since the last call, or if
        there are no copies on the current streams. Wait for the first device.
        """
        # Inference tensors have no version counter.
        sources = find_comparable(
            each for each in parameters if not (each.requires_grad or each.is_inference())
        )
        own = [*sources] if detach else [detached(source, source) for source in sources]
        streams = find_device_streams(targets)
        with self.lock:
            copied = self._find_current(sources, streams)
            if copied is None:
                self.kept.clear()  # Free the old copies first.
                # Leave inference mode, because the next forward may run outside of inference mode
                # and could not use inference tensors.
                _, *rows = call_with_inference_mode(
                    False, lambda: detached_copies(sources, targets)
                )
                copied = self.kept[streams] = CopiedTensors(sources, rows)
            kept_rows = copied.rows[: len(targets) - 1]
            return sources, [own] + [[*map(detached, row, sources)] for row in kept_rows]

    def _find_current(
        self, sources: Sequence[Tensor], streams: DeviceStreams
    ) -> CopiedTensors | None:
        """Return the kept copies if they are current, and there is one for each of ``streams``."""
        for kept_streams, copied in self.kept.items():
            if (
                streams == kept_streams[: len(streams)]
                and [*map(id, sources)] == [*map(id, copied.sources)]
                and copied.is_current()
                and not copied.samples.find(copied.samples.differences())
            ):
                return copied
        return None
