"""Replicas that are kept inside ``with wrapper.hold()``.

Before each forward the state of the module is compared with that of the time when the replicas
were built. After a change they are built again. A change that the state does not show is found by
samples, or when the block ends, and is an error then.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from .._devices import as_device_or_current
from .._module_tree import Tree, collect_tree, is_script_module
from .._placement import DeviceId
from .._torch_private import call_with_inference_mode, has_modes_or_transforms
from .changes import find_comparable
from .copies import KeptCopies, find_device_streams
from .state import ReplicaSet


class KeptReplicas(KeptCopies[ReplicaSet]):
    """The replicas of one wrapper, kept while ``with`` blocks of ``hold`` are active."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: set[object] = set()  # An object for each active block.
        self._forwards = 0
        self._errors: list[str] = []

    @classmethod
    def find_active(cls, wrapper: nn.Module) -> Self | None:
        """Return the replicas of ``wrapper``; None outside of :func:`keep_replicas`."""
        found = cls.find(wrapper)
        return found if found is not None and found.blocks else None

    def replicas(
        self, module: nn.Module, device_ids: Sequence[DeviceId], build: Callable[[], Sequence[Any]]
    ) -> Sequence[Any]:
        """Return one replica with the current state of ``module`` for each device.

        If none are kept, or the module has changed, ``build`` builds them. Raise RuntimeError if
        grad mode is on.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Held replicas are detached, and grad mode is on: call the module under "
                "torch.no_grad(), or outside of hold()"
            )
        # Copies that a mode of the caller has made must not be used after its end.
        if has_modes_or_transforms():
            return build()
        streams = find_device_streams([as_device_or_current(device) for device in device_ids])
        with self.lock:
            self._forwards += 1
            kept = self.kept.get(streams)
            if kept is not None:
                if kept.has_state_of(module):
                    kept.sample()
                    return kept.replicas
                self._errors += filter(None, [self.kept.pop(streams).find_error(compares=False)])
                del kept  # Free the old replicas first.
            if not _can_be_kept(collect_tree(module)):
                return build()
            # Leave inference mode, because the next forward may run outside of inference mode and
            # could not use inference tensors.
            self.kept[streams] = kept = call_with_inference_mode(
                False, lambda: ReplicaSet(module, build(), self._forwards)
            )
            return kept.replicas

    def end(self, block: object) -> str | None:
        """End a block. A second call, after an interrupt of the first one, completes it.

        The last block frees all replicas. Return a text if a forward may have used old values.
        """
        with self.lock:
            self.blocks.discard(block)
            if self.blocks:
                return None
            kept, self.kept, self._forwards = self.kept, {}, 0
            errors, self._errors = self._errors, []
            errors += filter(None, [each.find_error(compares=True) for each in kept.values()])
        return errors[0] if errors else None


def _can_be_kept(tree: Tree) -> bool:
    """Return whether all changes of ``tree`` can be seen."""
    tensors = [*tree.parameters, *tree.buffers]
    return (
        not any(map(_is_opaque, tree.modules))
        and not any(buffer.is_inference() for buffer in tree.buffers)
        and len(find_comparable(tensors)) == len(tensors)
    )


def _is_opaque(module: nn.Module) -> bool:
    """Return whether ``module`` has attributes elsewhere, or changes buffers without a version.

    ``functional.batch_norm`` does so in training, with one-dimensional buffers.
    """
    return is_script_module(module) or (
        module.training and any(map(_may_be_statistic, module._buffers.values()))
    )


def _may_be_statistic(buffer: Tensor | None) -> bool:
    return buffer is not None and buffer.dim() == 1 and buffer.is_floating_point()


@contextmanager
def keep_replicas(wrapper: nn.Module) -> Iterator[None]:
    """Return a context manager that keeps the replicas of ``wrapper``. Blocks may be nested.

    At the end of the outermost block, raise RuntimeError if a forward may have used old values.
    If an exception ends the block, warn.
    """
    kept = KeptReplicas.find_or_make(wrapper)
    block, is_complete = object(), False
    # An interrupt may skip the end of the block. Python then closes this generator when the
    # context manager is freed.
    try:
        kept.blocks.add(block)
        yield
        is_complete = True
    finally:
        try:
            text = kept.end(block)
        except BaseException:
            kept.end(block)
            raise
        if text is not None and not is_complete:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
    if text is not None:
        raise RuntimeError(text)
