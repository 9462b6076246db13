"""A table of checks. Each tries a function of a back end that PyTorch, impl or the suite needs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from spec_tests.harness.environment import back_end_checks as checks
from spec_tests.harness.environment import feature_checks as features

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
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
)
#: Dtypes that tests only copy. PyTorch itself does not compute with them.
_COPIED = {torch.uint16, torch.uint32, torch.uint64}


@dataclass(frozen=True)
class Check:
    """A check of one feature of a back end.

    Args:
        name: The name of the feature.
        function: The functions that are tried, as text.
        users: The software that needs the feature, and what happens without the feature.
        is_required: Whether DataParallel cannot work without the feature.
        run: Tries the functions on devices of the back end.
    """

    name: str
    function: str
    users: str
    is_required: bool
    run: Callable[[checks.Devices], None]


@dataclass(frozen=True)
class Finding:
    """The result of a check; ``text`` is the error if the function is missing or wrong."""

    check: Check
    state: State
    text: str = ""


def try_check(check: Check, devices: checks.Devices) -> Finding:
    """Run one check on ``devices``, which are different devices of one type."""
    try:
        check.run(devices)
    except Exception as error:  # a back end may raise anything for a missing function
        state: State = "wrong" if isinstance(error, checks.WrongResultError) else "missing"
        return Finding(check, state, _first_line(error))
    return Finding(check, "there")


def try_dtype(dtype: torch.dtype, device: torch.device) -> str | None:
    """Make, copy, add and multiply tensors of ``dtype``; return the text of the error, or None."""
    ones = torch.ones(3, dtype=dtype)
    try:
        found, expected = _results(ones.to(device)), _results(ones)
        is_right = all(map(torch.equal, (result.cpu() for result in found), expected))
        return None if is_right else f"wrong values of {dtype}"
    except Exception as error:  # a back end may raise anything for an unsupported dtype
        return _first_line(error)


def _results(vector: Tensor) -> list[Tensor]:
    """Return a copy of ``vector``, and sums and products if PyTorch computes in its dtype."""
    results = [vector.clone()]
    if vector.dtype not in _COPIED:
        results.append((vector + torch.ones_like(vector)) * vector)
    if vector.is_complex():
        results.append(torch.view_as_real(vector).clone())
    if vector.is_floating_point() or vector.is_complex():
        results.append(vector[None] @ vector[:, None])
    return results


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


_BACKWARD = "PyTorch's backward over several devices"
CHECKS = (
    Check("availability", "is_available()", "torch.accelerator", True, checks.check_availability),
    Check("count", "device_count()", "torch.accelerator, impl", True, checks.check_count),
    Check(
        "current device",
        "torch.accelerator.set_device_index",
        "PyTorch, impl",
        True,
        checks.check_current_device,
    ),
    Check("new tensors", "torch.ones(device=...)", "PyTorch", True, checks.check_new_tensors),
    Check(
        "copies between devices",
        "tensor.to(device)",
        "impl",
        True,
        checks.check_copies_between_devices,
    ),
    Check(
        "copies of views", "tensor.t().to(device)", "impl", True, checks.check_copies_from_views
    ),
    Check(
        "strided writes",
        "tensor[:, 1].fill_()",
        "impl, the suite",
        True,
        checks.check_strided_writes,
    ),
    Check(
        "synchronize", "torch.accelerator.synchronize", "the suite", True, checks.check_synchronize
    ),
    Check(
        "current stream",
        "torch.accelerator.current_stream",
        "impl",
        True,
        checks.check_current_stream,
    ),
    Check(
        "waits between streams", "Stream.wait_stream", _BACKWARD, True, checks.check_stream_waits
    ),
    Check("backward", "backward on one device", "PyTorch", True, checks.check_backward),
    Check(
        "backward over devices",
        "backward of copies",
        "impl",
        True,
        checks.check_backward_over_devices,
    ),
    Check(
        "new-streams",
        "torch.Stream(device)",
        "impl; without it, impl copies on the current stream",
        False,
        features.check_new_streams,
    ),
    Check(
        "distinct-streams",
        "torch.Stream(device)",
        "the suite; without it, no test shows the order of work",
        False,
        features.check_distinct_streams,
    ),
    Check(
        "events",
        "torch.Event",
        "the suite's tests of order in time",
        False,
        features.check_events,
    ),
    Check(
        "record-stream",
        "Tensor.record_stream",
        "impl; without it, impl copies on the current stream",
        False,
        features.check_record_stream,
    ),
    Check("seeds", "manual_seed_all", "the suite", False, features.check_seeds),
    Check(
        "generators",
        "torch.Generator(device)",
        "the suite",
        False,
        features.check_generators,
    ),
    Check(
        "autocast",
        "torch.autocast(type)",
        "users, the suite",
        False,
        features.check_autocast,
    ),
    Check(
        "pinned-memory",
        "Tensor.pin_memory",
        "users, the suite",
        False,
        features.check_pinned_memory,
    ),
    Check("sparse", "Tensor.to_sparse", "users, the suite", False, features.check_sparse),
    Check(
        "channels-last",
        "conv2d with a channels-last weight",
        "users, the suite",
        False,
        features.check_channels_last,
    ),
    Check(
        "empty-batches",
        "linear layer without rows",
        "users, the suite",
        False,
        features.check_empty_batches,
    ),
    Check(
        "kept-parameters",
        "module.to() with the same Parameter objects",
        "optimizers",
        False,
        features.check_kept_parameters,
    ),
)
#: The features among `CHECKS` that a test may need, by name.
FEATURES = tuple(check.name for check in CHECKS if not check.is_required)


def find_all(devices: checks.Devices) -> Iterator[Finding]:
    """Yield the result of each check on ``devices``."""
    distinct = list(dict.fromkeys(devices))
    return (try_check(check, distinct) for check in CHECKS)
