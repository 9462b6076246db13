"""Clauses whose violations the state machine ignores, if a probe shows them.

The tests of these clauses fail, not every life.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target

ZERO_GRADIENTS = "divergences.FN-1.unused-stay-without-gradient"
SHARED_COPIES = "divergences.CO-4.repeated-devices-get-copies"
CPU_DEVICES = "divergences.DP-1.cpu-devices"
OUTPUT_OF_ONE_DEVICE = "divergences.DP-2.output-device-of-one-device"
CONSTANTS = "divergences.SG-1.replicas-follow-chunks"
CYCLES = "divergences.PA-6.the-original-is-the-cause"
INFERENCE = "divergences.PA-2.inference-mode-reaches-the-modules"
AUTOCAST = "divergences.PA-1.autocast-reaches-the-modules"


def shown_by(target: Target, topology: Topology) -> frozenset[str]:
    """Return the clauses whose probe fails."""
    wrap, devices = target.data_parallel.DataParallel, topology.take([0, 1])
    return frozenset(name for name, probe in PROBES.items() if not _succeeds(probe, wrap, devices))


def _succeeds(probe: Callable[..., bool], *args: Any) -> bool:
    try:
        return probe(*args)
    except Exception:
        return False


def _runs_on_the_cpu(wrap: Callable[..., Any], devices: Sequence[torch.device]) -> bool:
    wrap(nn.Linear(1, 1), ["cpu", "cpu"])(torch.ones(2, 1)).sum().backward()
    return True


def _moves_outputs(wrap: Callable[..., Any], devices: Sequence[torch.device]) -> bool:
    first, last = devices
    return bool(wrap(nn.Identity(), [first], last)(torch.ones(1, 1)).device == last)


class _Counter(nn.Module):
    """Counts its calls in a buffer. It uses one of two parameters, and may raise an error."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = (nn.Parameter(torch.ones(1)) for _ in range(2))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor, divisor: float = 1) -> Tensor:
        if divisor == 0:
            raise ZeroDivisionError
        self.count += 1
        return self.used * x / divisor


def _keeps_unused_without_gradient(
    wrap: Callable[..., Any], devices: Sequence[torch.device]
) -> bool:
    module = _Counter().to(devices[0])
    wrap(module, devices)(torch.ones(2, 1)).sum().backward()
    return module.unused.grad is None


def _copies_for_a_repeated_device(
    wrap: Callable[..., Any], devices: Sequence[torch.device]
) -> bool:
    module = _Counter().to(devices[0])
    wrap(module, [devices[0]] * 2)(torch.ones(2, 1))
    return module.count.item() != 2  # A shared count is that of both replicas.


def _calls_one_replica(wrap: Callable[..., Any], devices: Sequence[torch.device]) -> bool:
    wrap(_Counter().to(devices[0]), devices)(torch.ones(1, 1), divisor=2)
    return True


def _keeps_the_cause(wrap: Callable[..., Any], devices: Sequence[torch.device]) -> bool:
    try:
        wrap(_Counter().to(devices[0]), devices)(torch.ones(2, 1), torch.zeros(2, 1))
    except ZeroDivisionError as error:
        return not (error.__cause__ or error).args  # as the module has raised it
    return False


class _Modes(nn.Module):
    """Stores whether inference mode is enabled, and the dtype of autocast, in each replica."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, torch.dtype | None]] = []

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        self.seen.append((torch.is_inference_mode_enabled(), dtype))
        return x


def _modes_in(
    mode: AbstractContextManager[Any], wrap: Callable[..., Any], devices: Sequence[torch.device]
) -> list[tuple[bool, torch.dtype | None]]:
    module = _Modes()
    with mode:
        wrap(module, devices)(torch.ones(2, 1))
    return module.seen


def _has_inference_mode(wrap: Callable[..., Any], devices: Sequence[torch.device]) -> bool:
    return all(inference for inference, _ in _modes_in(torch.inference_mode(), wrap, devices))


def _has_autocast(wrap: Callable[..., Any], devices: Sequence[torch.device]) -> bool:
    mode = torch.autocast(devices[0].type, torch.bfloat16)
    return all(dtype == torch.bfloat16 for _, dtype in _modes_in(mode, wrap, devices))


PROBES: dict[str, Callable[..., bool]] = {
    ZERO_GRADIENTS: _keeps_unused_without_gradient,
    SHARED_COPIES: _copies_for_a_repeated_device,
    CONSTANTS: _calls_one_replica,
    CYCLES: _keeps_the_cause,
    CPU_DEVICES: _runs_on_the_cpu,
    OUTPUT_OF_ONE_DEVICE: _moves_outputs,
    INFERENCE: _has_inference_mode,
    AUTOCAST: _has_autocast,
}
