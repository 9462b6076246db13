"""The devices of a run: accelerator, ordinals and their order, faults and left out features."""

import gc
import importlib
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

import pytest
import torch
from torch import Tensor

from spec_tests import cuda_stand_ins, simulator
from spec_tests.failure import Fact, Failure
from spec_tests.machine.verdicts import NotRun
from spec_tests.simulator import Race, build
from spec_tests.simulator.pytest_plugin import race_text

#: Environment variable: modules, separated by commas, that register a back end. Child processes of
#: a test inherit it, and import these modules.
BACK_ENDS = "SPEC_TESTS_MODULES"
#: Match the beginnings of warnings that depend on the build of PyTorch, or on a back end that runs
#: an operator on the CPU: slow, but right.
WARNINGS_OF_BUILD = (
    r".*(will fall|is falling|falls) back to",
    ".*is not currently supported on the",
    *cuda_stand_ins.IGNORED_WARNINGS,
)
#: The number of simulated devices.
SIMULATED_DEVICES = 4


@dataclass(frozen=True)
class Topology:
    """The devices of a run in order. A position in this order is a *slot*.

    Args:
        accelerator: The device type: ``sim``, ``cuda``, ...
        ordinals: The ordinal of the device of each slot. With ``(0, 0, 0)`` one device has three
            slots.
    """

    accelerator: str
    ordinals: tuple[int, ...]

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The device of each slot."""
        return tuple(torch.device(self.accelerator, ordinal) for ordinal in self.ordinals)

    @property
    def distinct(self) -> int:
        """The number of different devices: 1 for the ordinals ``(0, 0, 0)``."""
        return len(set(self.ordinals))

    def device(self, slot: int | None) -> torch.device:
        """Return the device of a slot; the CPU if ``slot`` is None.

        A slot beyond the last one counts from the first one again.
        """
        if slot is None:
            return torch.device("cpu")
        return torch.device(self.accelerator, self.ordinals[slot % len(self.ordinals)])

    def take(self, slots: int | Sequence[int]) -> list[torch.device]:
        """Return the devices of the given slots; an int ``n`` means the first ``n`` slots."""
        indices = range(slots) if isinstance(slots, int) else slots
        return [self.device(index) for index in indices]

    def require(self, distinct: int) -> None:
        """End the test as not-run if there are fewer than ``distinct`` different devices."""
        if self.distinct < distinct:
            not_run(f"needs {distinct} different devices, the topology has {self.distinct}")

    def require_copies(self) -> None:
        """End the test as not-run if the reference may use NCCL instead of copies."""
        if self.accelerator == "cuda" and self.distinct > 1:
            not_run("between several CUDA devices the reference may use NCCL")

    def fail_allocations(self, slot: int) -> AbstractContextManager[None]:
        """Return a block in which allocations on the device of ``slot`` fail.

        End the test as not-run on real devices.
        """
        if self.accelerator != "sim":
            not_run("only the simulated accelerator can inject faults")
        return simulator.fault("no-memory", device=self.device(slot).index)

    def synchronize(self) -> None:
        """Wait until every device is idle."""
        for device in set(self.devices):
            torch.accelerator.synchronize(device)

    def memory_allocated(self) -> int:
        """Return the bytes of all tensors on the devices; garbage is freed before.

        End the test as not-run if the back end does not count memory.
        """
        module = getattr(torch, self.accelerator)
        if not hasattr(module, "memory_allocated"):
            not_run(f"torch.{self.accelerator} does not count memory")
        gc.collect()
        self.synchronize()
        return sum(module.memory_allocated(device) for device in set(self.devices))

    def __repr__(self) -> str:
        return f"Topology({self.accelerator}:{','.join(map(str, self.ordinals))})"


def not_run(reason: str) -> NoReturn:
    """End the test with the verdict not-run. The run prints the reason."""
    raise NotRun(reason)


def make_topology(
    accelerator: str, device_ids: str | None, say: Callable[[str], object] = str
) -> Topology:
    """Return the devices that ``--accelerator`` and ``--device-ids`` select.

    Enable the simulator, and the replacements of CUDA-only functions, if they are needed.

    Args:
        accelerator: The device type; ``auto`` means the accelerator of this machine, or ``sim``.
        device_ids: Ordinals, separated by commas; None for all devices.
        say: Prints a line before and after the simulator is built, which takes half a minute.

    Raises:
        pytest.UsageError: there is no such accelerator, or no such device.
    """
    for name in filter(None, os.environ.get(BACK_ENDS, "").split(",")):
        importlib.import_module(name)
    if accelerator == "auto":
        current = torch.accelerator.current_accelerator(check_available=True)
        accelerator = current.type if current is not None else "sim"
    if accelerator == "sim":
        _enable_simulator(say)
    current = torch.accelerator.current_accelerator(check_available=True)
    if current is None or current.type != accelerator:
        own = "" if current is None or current.type == "sim" else f"{current.type} and "
        raise pytest.UsageError(
            f"--accelerator {accelerator}: no such accelerator; this machine has {own}sim "
            "(simulated); -p MODULE imports another back end"
        )
    cuda_stand_ins.enable()
    if accelerator == "cuda":
        # Several threads must not load CUDA's linear algebra at the same time: PyTorch raises
        # "lazy wrapper should be called at most once".
        torch.linalg.inv(torch.ones(1, 1, device=accelerator))
        # TF32 rounds a chunk and the whole batch differently.
        torch.backends.cudnn.allow_tf32 = False
    return Topology(accelerator, _parse_ordinals(device_ids, torch.accelerator.device_count()))


def _enable_simulator(say: Callable[[str], object]) -> None:
    try:
        if not build.library().exists():
            say("building the simulated accelerator in C++, once on this machine (30 s) ...")
            start = time.monotonic()
            build.build()
            say(f"built in {time.monotonic() - start:.0f} s")
        simulator.enable(device_count=SIMULATED_DEVICES)
    except (OSError, RuntimeError) as error:  # the simulator cannot be built
        raise pytest.UsageError(f"--accelerator sim: {error}") from None


def _parse_ordinals(device_ids: str | None, count: int) -> tuple[int, ...]:
    if device_ids is None:
        return tuple(range(count))
    try:
        ordinals = tuple(int(part) for part in device_ids.split(","))
    except ValueError:
        raise pytest.UsageError(
            f"--device-ids {device_ids}: expected numbers and commas"
        ) from None
    bad = [ordinal for ordinal in ordinals if not 0 <= ordinal < count]
    if bad:
        raise pytest.UsageError(
            f"--device-ids: no device {bad[0]}, this machine has {count} devices"
        )
    return ordinals


def inject(config: pytest.Config, topology: Topology) -> None:
    """Inject the fault that ``--fault`` names. It stays until the run ends.

    Raises:
        pytest.UsageError: there is no such fault, or the devices are real.
    """
    name = config.getoption("--fault")
    if name is None:
        return
    if topology.accelerator != "sim":
        raise pytest.UsageError("--fault: only the simulated accelerator can inject faults")
    try:
        simulator.check_fault(name)
    except ValueError as error:
        raise pytest.UsageError(f"--fault: {error}") from None
    switches = ExitStack()
    switches.enter_context(simulator.fault(name))
    config.add_cleanup(switches.close)


def switch_off(config: pytest.Config) -> None:
    """Switch off the features of the simulator that ``--without`` names.

    Call it before the devices are made. On real devices nothing is switched off; see
    `capabilities.switched_off`.

    Raises:
        pytest.UsageError: there is no such feature.
    """
    names, kind = config.getoption("--without"), config.getoption("--accelerator")
    if kind == "auto" and torch.accelerator.current_accelerator(check_available=True) is None:
        kind = "sim"
    if not names or kind != "sim":
        return
    try:
        simulator.switch_off(names)
    except ValueError as error:
        raise pytest.UsageError(f"--without: {error}") from None


def race_failure(races: Sequence[Race]) -> Failure:
    """Return the failure of a test whose accesses to device memory race."""
    names = {"early free" if race.is_free else "race" for race in races}
    return Failure("race", tuple(Fact("memory", name) for name in sorted(names)), race_text(races))


#: The text about devices on which a test of the order of work always passes.
SYNCHRONOUS = "operators are synchronous: no test shows the order of work"

#: The least duration in milliseconds of one product. It hides the time to queue the product.
_LEAST = 10.0
#: The smallest and the largest number of rows of the matrix.
_ROWS = (256, 8192)


def queue_work(device: torch.device, milliseconds: float) -> None:
    """Queue work that takes ``milliseconds`` on the current stream of ``device``; do not wait.

    The simulator has no delay: an operator has finished when it returns. Its race detector finds
    reads that come too early.
    """
    if device.type == "sim":
        return
    matrix, duration = _find_product(device)
    for _ in range(math.ceil(milliseconds / duration)):
        matrix @ matrix


@cache
def _find_product(device: torch.device) -> tuple[Tensor, float]:
    """Return a square matrix, and the milliseconds of its product with itself on ``device``."""
    rows, most_rows = _ROWS
    while True:
        matrix = torch.zeros(rows, rows, device=device)
        durations = []
        for _ in range(5):
            torch.accelerator.synchronize(device)
            start = time.perf_counter()
            matrix @ matrix
            torch.accelerator.synchronize(device)
            durations.append((time.perf_counter() - start) * 1000)
        duration = min(durations)
        if duration >= _LEAST or rows == most_rows:
            return matrix, duration
        rows *= 2
