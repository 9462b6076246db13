"""Errors: a wrong call raises, and the devices work afterwards."""

import contextlib
import os
import select
import signal
import warnings

import pytest
import torch
from torch import accelerator

from spec_tests.machine.clauses import clause

#: Seconds after which a forked child counts as hanging.
SECONDS = 60


@clause("devices.errors.raised")
def test_an_operator_with_wrong_operands_raises_and_the_device_works(topology):
    for device in topology.devices:
        ones = torch.ones(2, 3, device=device)
        for call in (
            lambda: ones @ ones,  # noqa: B023
            lambda: ones.view(7),  # noqa: B023
            lambda: torch.ones(2, dtype=torch.int64, device=ones.device).add_(0.5),  # noqa: B023
        ):
            try:
                call()
            except RuntimeError:
                pass
            else:
                accelerator.synchronize(device.index)  # A late error may end the process.
                pytest.fail("wrong operands raise no error")
            accelerator.synchronize(device.index)
            found = (ones + 1).sum().item()
            assert found == 12, f"after an error the sum on {device} is {found}, not 12"


@clause("devices.errors.two-devices")
def test_operands_on_two_devices_are_refused(topology):
    topology.require(distinct=2)
    first, second = (torch.ones(2, device=device) for device in topology.take(2))
    for name in ("add", "mul", "dot"):
        error = _error_of(lambda: getattr(first, name)(second))  # noqa: B023
        assert error, f"{name} of tensors on {first.device} and {second.device} raises no error"


@clause("devices.errors.missing-device")
def test_a_missing_device_is_refused(topology):
    ordinal = accelerator.device_count()
    missing = torch.device(topology.accelerator, ordinal)
    for name, call in {
        "torch.ones": lambda: torch.ones(1, device=missing),
        "Tensor.to": lambda: torch.ones(1).to(missing),
        "set_device_index": lambda: accelerator.set_device_index(ordinal),
    }.items():
        before = accelerator.current_device_index()
        error = _error_of(call)
        accelerator.set_device_index(before)
        assert error, f"{name} with the missing device {missing} raises no error"


@clause("devices.errors.fork")
def test_a_forked_process_cannot_use_the_devices(topology):
    device = topology.device(0)
    torch.ones(1, device=device)
    error = _error_in_fork(lambda: torch.ones(1, device=device).item())
    assert error, "a forked process uses the devices without an error"
    assert "fork" in error, f"the error in a forked process does not name the fork: {error}"


def _error_of(call):
    """Return the first line of the error that ``call`` raises; None if it raises none."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def _error_in_fork(call):
    """Return the error of ``call`` in a forked process; an empty text if it raises none."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns if the process has threads.
        child = os.fork()
    if child == 0:
        os.write(writing, (_error_of(call) or "").encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        is_done, _, _ = select.select([file], [], [], SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL if not is_done else 0)
        text = file.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"a forked process that uses the devices ends with status {status}"
    return text
