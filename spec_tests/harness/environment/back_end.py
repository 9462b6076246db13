"""What a back end offers, found by trying: each function that PyTorch, impl or the suite needs.

A check raises `WrongResultError` if the result of a function is wrong. Any other exception means
that the function is missing.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

__all__ = [
    "CHECKS",
    "DTYPES",
    "FEATURES",
    "Check",
    "Finding",
    "find_all",
    "try_check",
    "try_dtype",
]

Devices = Sequence[torch.device]
State = Literal["there", "missing", "wrong"]

#: The dtypes that strategies draw from, and others that tests use.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


class WrongResultError(Exception):
    """The result of a function of the back end is wrong."""


@dataclass(frozen=True)
class Check:
    """A function of a back end.

    Args:
        name: The name of the feature.
        function: The functions that are tried.
        users: The software that needs the function, and the consequence without it.
        is_required: Whether DataParallel cannot work without it.
        run: Tries the function on devices of the back end.
    """

    name: str
    function: str
    users: str
    is_required: bool
    run: Callable[[Devices], None]


@dataclass(frozen=True)
class Finding:
    """The result of a check; ``text`` is the error if the function is missing or wrong."""

    check: Check
    state: State
    text: str = ""


def try_check(check: Check, devices: Devices) -> Finding:
    """Run one check on ``devices``, which are different devices of one type."""
    try:
        check.run(devices)
    except Exception as error:  # a back end may raise anything for a missing function
        state: State = "wrong" if isinstance(error, WrongResultError) else "missing"
        return Finding(check, state, _first_line(error))
    return Finding(check, "there")


def try_dtype(dtype: torch.dtype, device: torch.device) -> str | None:
    """Make, add and copy tensors of ``dtype``; return the text of the error, or None."""
    ones = torch.ones(3, dtype=dtype)
    try:
        total = ones.to(device) + torch.ones(3, dtype=dtype, device=device)
        return None if torch.equal(total.cpu(), ones + ones) else f"wrong sums of {dtype}"
    except Exception as error:  # a back end may raise anything for an unsupported dtype
        return _first_line(error)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise WrongResultError(text)


def _module(devices: Devices) -> Any:
    return torch.get_device_module(devices[0])


def _check_availability(devices: Devices) -> None:
    _require(_module(devices).is_available() is True, "is_available() is not True")


def _check_count(devices: Devices) -> None:
    count = _module(devices).device_count()
    _require(count > max(device.index for device in devices), f"device_count() is {count}")


def _check_current_device(devices: Devices) -> None:
    before = torch.accelerator.current_device_index()
    try:
        for device in devices:
            torch.accelerator.set_device_index(device.index)
            found = torch.accelerator.current_device_index()
            _require(found == device.index, f"after set_device_index({device.index}): {found}")
    finally:
        torch.accelerator.set_device_index(before)


def _check_new_tensors(devices: Devices) -> None:
    for device in devices:
        tensor = torch.ones(3, device=device)
        _require(tensor.device == device, f"a tensor for {device} is on {tensor.device}")
        _require(tensor.tolist() == [1.0] * 3, f"torch.ones on {device} is {tensor.tolist()}")


def _check_copies_between_devices(devices: Devices) -> None:
    expected = torch.arange(1000.0)
    for source, target in itertools.permutations(devices, 2):
        copy = expected.to(source).to(target)
        _require(copy.device == target, f"a copy to {target} is on {copy.device}")
        _require(torch.equal(copy.cpu(), expected), f"{source} to {target}: other values")


def _check_copies_from_views(devices: Devices) -> None:
    matrix = torch.arange(12.0).reshape(3, 4)
    for copy in (matrix.to(devices[0]).t().cpu(), matrix.t().to(devices[0]).cpu()):
        _require(torch.equal(copy, matrix.t()), f"the copy of a transposed tensor is {copy}")


def _check_strided_writes(devices: Devices) -> None:
    vector, matrix = torch.zeros(5), torch.zeros(3, 4)
    on_device = vector.to(devices[0]), matrix.to(devices[0])
    for a, b in ((vector, matrix), on_device):
        a[2:].fill_(-1)
        b[:, 1].fill_(2)
        b[1:, 2:].copy_(torch.ones(2, 2, device=b.device))
        b.t()[3].add_(5)
    for expected, found in zip((vector, matrix), on_device, strict=True):
        _require(
            torch.equal(found.cpu(), expected), f"{found.tolist()} is not {expected.tolist()}"
        )


def _check_synchronize(devices: Devices) -> None:
    for device in devices:
        torch.accelerator.synchronize(device.index)


def _check_current_stream(devices: Devices) -> None:
    for device in devices:
        stream = torch.accelerator.current_stream(device.index)
        _require(stream.device == device, f"the stream of {device} is on {stream.device}")


def _check_stream_waits(devices: Devices) -> None:
    streams = [torch.accelerator.current_stream(device.index) for device in devices]
    for waiting, awaited in itertools.permutations(streams, 2):
        waiting.wait_stream(awaited)


def _check_backward(devices: Devices) -> None:
    for device in devices:
        torch.manual_seed(0)
        module, batch = nn.Linear(3, 2), torch.arange(6.0).reshape(2, 3)
        module(batch).square().sum().backward()
        expected = module.weight.grad
        module.zero_grad()
        module.to(device)(batch.to(device)).square().sum().backward()
        _require(module.weight.grad is not None, f"{device}: the weight has no gradient")
        found, expected = module.weight.grad.cpu(), expected.cpu()
        _require(torch.allclose(found, expected), f"{device}: the gradient is {found.tolist()}")


def _check_backward_over_devices(devices: Devices) -> None:
    x = torch.ones(2, device=devices[0], requires_grad=True)
    total = sum((x.to(device) * 2).to(devices[0]) for device in devices)
    total.sum().backward()
    expected = [2.0 * len(devices)] * 2
    _require(x.grad.tolist() == expected, f"the gradient is {x.grad.tolist()}, not {expected}")


def _check_new_streams(devices: Devices) -> None:
    stream = torch.Stream(devices[0])
    before = torch.accelerator.current_stream(devices[0].index)
    torch.accelerator.set_stream(stream)
    torch.accelerator.set_stream(before)


def _check_distinct_streams(devices: Devices) -> None:
    new, current = torch.Stream(devices[0]), torch.accelerator.current_stream(devices[0].index)
    _require(new != current, "torch.Stream(device) returns the current stream")


def _check_events(devices: Devices) -> None:
    event = torch.Event(devices[0])
    event.record(torch.accelerator.current_stream(devices[0].index))
    event.synchronize()
    _require(event.query(), "query() is False after synchronize()")


def _check_record_stream(devices: Devices) -> None:
    tensor = torch.ones(1, device=devices[0])
    tensor.record_stream(torch.accelerator.current_stream(devices[0].index))


def _check_seeds(devices: Devices) -> None:
    draws = []
    for _ in range(2):
        _module(devices).manual_seed_all(3)
        draws.append([torch.rand(2, device=device).tolist() for device in devices])
    _require(draws[0] == draws[1], "one seed gives different numbers")


def _check_generators(devices: Devices) -> None:
    draws = []
    for _ in range(2):
        generator = torch.Generator(devices[0]).manual_seed(3)
        draws.append(torch.rand(2, device=devices[0], generator=generator).tolist())
    _require(draws[0] == draws[1], "one seed gives different numbers")


def _check_autocast(devices: Devices) -> None:
    matrix = torch.ones(2, 2, device=devices[0])
    with torch.autocast(devices[0].type, dtype=torch.bfloat16):
        dtype = (matrix @ matrix).dtype
    _require(dtype == torch.bfloat16, f"a product under autocast is {dtype}")


def _check_pinned_memory(devices: Devices) -> None:
    _require(torch.ones(1).pin_memory().is_pinned(), "is_pinned() is False")


def _check_sparse(devices: Devices) -> None:
    dense = torch.eye(2, device=devices[0])
    _require(torch.equal(dense.to_sparse().to_dense().cpu(), torch.eye(2)), "other values")


def _check_kept_parameters(devices: Devices) -> None:
    module = nn.Linear(1, 1)
    before = module.weight
    _require(module.to(devices[0]).weight is before, "module.to() creates new parameters")


_BACKWARD = "PyTorch's backward over several devices"
CHECKS = (
    Check("availability", "is_available()", "torch.accelerator", True, _check_availability),
    Check("count", "device_count()", "torch.accelerator, impl", True, _check_count),
    Check(
        "current device",
        "torch.accelerator.set_device_index",
        "PyTorch, impl",
        True,
        _check_current_device,
    ),
    Check("new tensors", "torch.ones(device=...)", "PyTorch", True, _check_new_tensors),
    Check(
        "copies between devices", "tensor.to(device)", "impl", True, _check_copies_between_devices
    ),
    Check("copies of views", "tensor.t().to(device)", "impl", True, _check_copies_from_views),
    Check("strided writes", "tensor[2:].fill_()", "impl, the suite", True, _check_strided_writes),
    Check("synchronize", "torch.accelerator.synchronize", "the suite", True, _check_synchronize),
    Check(
        "current stream", "torch.accelerator.current_stream", "impl", True, _check_current_stream
    ),
    Check("waits between streams", "Stream.wait_stream", _BACKWARD, True, _check_stream_waits),
    Check("backward", "backward on one device", "PyTorch", True, _check_backward),
    Check(
        "backward over devices", "backward of copies", "impl", True, _check_backward_over_devices
    ),
    Check(
        "new-streams",
        "torch.Stream(device)",
        "impl; without it, impl copies on the current stream",
        False,
        _check_new_streams,
    ),
    Check(
        "distinct-streams",
        "torch.Stream(device)",
        "the suite; without it, no test shows the order of work",
        False,
        _check_distinct_streams,
    ),
    Check("events", "torch.Event", "the suite's tests of order in time", False, _check_events),
    Check(
        "record-stream",
        "Tensor.record_stream",
        "impl; without it, impl copies on the current stream",
        False,
        _check_record_stream,
    ),
    Check("seeds", "manual_seed_all", "the suite", False, _check_seeds),
    Check("generators", "torch.Generator(device)", "the suite", False, _check_generators),
    Check("autocast", "torch.autocast(type)", "users, the suite", False, _check_autocast),
    Check("pinned-memory", "Tensor.pin_memory", "users, the suite", False, _check_pinned_memory),
    Check("sparse", "Tensor.to_sparse", "users, the suite", False, _check_sparse),
    Check("kept-parameters", "module.to()", "optimizers", False, _check_kept_parameters),
)
#: The features among `CHECKS` that a test may need, by name.
FEATURES = tuple(check.name for check in CHECKS if not check.is_required)


def find_all(devices: Devices) -> Iterator[Finding]:
    """Yield the result of each check on ``devices``."""
    distinct = list(dict.fromkeys(devices))
    return (try_check(check, distinct) for check in CHECKS)
