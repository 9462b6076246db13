"""Copies of frozen parameters that are kept between the forwards of a wrapper.

A parameter is frozen if it does not require grad. ``k`` is the number of devices.
"""

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._comm import detached, detached_copies, is_wrapper
from .._compat import call_with_inference_mode, use_plain_operators, version_counters
from .._device import current_stream_by_device
from .module_state import memory_of


class _Kept(NamedTuple):
    """One copy, and the state of its source when the copy was made."""

    copy: Tensor
    state: tuple[Any, ...]
    source: Tensor  # This reference keeps the `id` of the source from coming back.
    storage: torch.UntypedStorage  # This reference keeps the address from coming back.
    memory: object


class _Row(NamedTuple):
    """The copies for one replica. They are ready on ``stream``, and are freed on it."""

    device: torch.device
    stream: torch.Stream | None
    copies: dict[int, _Kept]  # The key is the `id` of the source.


class FrozenCopies:
    """The copies of the frozen parameters of one wrapper: at most one for each replica."""

    def __init__(self) -> None:
        #: Whether :meth:`rows` compares the values of parameters and copies.
        self.compares = False
        self._rows: dict[int, _Row] = {}
        # A signal handler may call the wrapper in a thread that holds the lock.
        self._lock = RLock()

    def note_step(self, changed: Sequence[Tensor]) -> None:
        """Drop the copies of the tensors in ``changed``, and of tensors that share a storage."""
        if not self._rows:
            return
        memory = set(map(memory_of, changed))
        with self._lock:
            for index, row in self._rows.items():
                copies = {key: it for key, it in row.copies.items() if it.memory not in memory}
                self._rows[index] = row._replace(copies=copies)

    def copy(
        self,
        network: nn.Module,
        parameters: Sequence[Tensor],
        targets: Sequence[torch.device],
        detach: bool,
    ) -> tuple[Sequence[Tensor], list[list[Tensor]]]:
        """Return the frozen parameters of ``network`` that can be kept, and ``k`` lists of copies.

        The first list has the parameters themselves, detached from their
        history unless ``detach`` is true. The other lists have detached tensors that share the
        memory of the kept copies. A parameter is copied if it has changed since the last call, or
        if there is no copy on the current stream. Raise RuntimeError if :attr:`compares` is true,
        and a value has changed without a new version.
        """
        sources = [*filter(_can_be_kept, parameters)]
        rows = [[*sources] if detach else [detached(source, source) for source in sources]]
        with self._lock:
            states = dict(zip(map(id, sources), _read_states(sources), strict=True))
            kept = [row.copies for row in self._update(sources, states, targets)]
            if self.compares:
                for copies in kept:
                    _compare(network, sources, copies)
            rows += [
                [detached(copies[id(source)].copy, source) for source in sources]
                for copies in kept
            ]
        return sources, rows

    def _update(
        self,
        sources: Sequence[Tensor],
        states: Mapping[int, tuple[Any, ...]],
        targets: Sequence[torch.device],
    ) -> list[_Row]:
        """Copy what has changed, and return the rows for all ``targets`` but the first.

        A row beyond the last of ``targets`` stays as it is.
        """
        streams = current_stream_by_device(targets)
        rows = []
        for index, target in enumerate(targets[1:], 1):
            row = self._current_row(index, target, streams.get(target), states)
            self._rows[index] = row  # This frees outdated copies before new ones are made.
            missing = [source for source in sources if id(source) not in row.copies]
            copies = _copy(missing, targets[0], target) if missing else []
            for source, copy in zip(missing, copies, strict=True):
                state = (*states[id(source)], *version_counters([copy]))
                storage, memory = source.untyped_storage(), memory_of(source)
                row.copies[id(source)] = _Kept(copy, state, source, storage, memory)
            rows.append(row)
        return rows

    def _current_row(
        self,
        index: int,
        device: torch.device,
        stream: torch.Stream | None,
        states: Mapping[int, tuple[Any, ...]],
    ) -> _Row:
        """Return a row with the copies that are ready on ``stream`` and have not changed."""
        row = self._rows.get(index)
        if row is None or (row.device, row.stream) != (device, stream):
            return _Row(device, stream, {})
        return _Row(device, stream, _current(row.copies, states))


def _can_be_kept(parameter: Tensor) -> bool:
    """Return whether ``parameter`` is frozen, and a change of it can be detected.

    Inference tensors have no version counter. Sparse tensors, and those of a class with its own
    operators, have no address.
    """
    return (
        not parameter.requires_grad
        and parameter.layout is torch.strided
        and not parameter.is_inference()
        and not is_wrapper(parameter)
    )


def _read_states(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [
        (version, each.data_ptr(), each.device, each.dtype, each.shape, each.stride())
        for version, each in zip(version_counters(tensors), tensors, strict=True)
    ]


def _current(
    copies: Mapping[int, _Kept], states: Mapping[int, tuple[Any, ...]]
) -> dict[int, _Kept]:
    """Return those of ``copies`` whose source has the state in ``states``, and did not change."""
    versions = version_counters([kept.copy for kept in copies.values()])
    return {
        key: kept
        for (key, kept), version in zip(copies.items(), versions, strict=True)
        if key in states and kept.state == (*states[key], version)
    }


def _copy(tensors: Sequence[Tensor], source: torch.device, target: torch.device) -> list[Tensor]:
    # A copy in a bucket would keep the memory of the whole bucket. Leave inference mode, because
    # the next forward may run outside of inference mode and could not use inference tensors.
    _, copies = call_with_inference_mode(
        False, lambda: detached_copies(tensors, [source, target], buffer_size=0)
    )
    return copies


def _compare(network: nn.Module, sources: Sequence[Tensor], copies: Mapping[int, _Kept]) -> None:
    """Raise RuntimeError if the bytes of a parameter differ from those of its copy."""
    for source in sources:
        copy = copies[id(source)].copy
        if not torch.equal(_bytes(source), _bytes(copy).to(source.device)):
            name = next(name for name, each in network.named_parameters() if each is source)
            raise RuntimeError(
                f"Parameter {name!r} differs from its cached copy on {copy.device}: one of them "
                "was changed through .data, NumPy or DLPack. Change the parameter under "
                "torch.no_grad() instead, or do not cache frozen parameters"
            )


def _bytes(tensor: Tensor) -> Tensor:
    with use_plain_operators():
        return tensor.detach().contiguous().flatten().view(torch.uint8)
