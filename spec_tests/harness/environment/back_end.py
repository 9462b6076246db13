"""A table of checks. Each tries a function of a back end that PyTorch, impl or the suite needs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spec_tests.harness.environment import back_end_checks as checks
from spec_tests.harness.environment import feature_checks as features
from spec_tests.harness.environment.probes import WrongResultError
from spec_tests.harness.environment.topology import Topology

__all__ = ["CHECKS", "DTYPES", "FEATURES", "Check", "dtype_name", "run_check", "try_dtype"]

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


def run_check(name: str, topology: Topology) -> None:
    """Run the check with this name on the different devices of ``topology``."""
    (check,) = (each for each in CHECKS if each.name == name)
    check.run(list(dict.fromkeys(topology.devices)))


def try_dtype(name: str, topology: Topology) -> None:
    """Make, copy, add, multiply and differentiate tensors of the dtype with this name.

    Raises:
        WrongResultError: a value differs from the CPU's.
    """
    ones = torch.ones(3, dtype=getattr(torch, name))
    found, expected = _results(ones.to(topology.device(0))), _results(ones)
    if not all(map(torch.equal, (result.cpu() for result in found), expected)):
        raise WrongResultError(f"wrong values of {ones.dtype}")


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of ``dtype`` without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def _results(vector: Tensor) -> list[Tensor]:
    """Return a copy of ``vector``, and sums and products if PyTorch computes in its dtype."""
    results = [vector.clone()]
    if vector.dtype not in _COPIED:
        results.append((vector + torch.ones_like(vector)) * vector)
    if vector.is_complex():
        results.append(torch.view_as_real(vector).clone())
    if vector.is_floating_point() or vector.is_complex():
        results.append(vector[None] @ vector[:, None])
        leaf = vector.clone().requires_grad_()
        results += torch.autograd.grad(leaf * leaf, leaf, torch.ones_like(leaf))
    return results


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
        "asynchronous-operators",
        "an early read of a late write",
        "the suite; without it, no test shows the order of work",
        False,
        features.check_asynchronous_operators,
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
    Check(
        "addresses",
        "Tensor.data_ptr",
        "the suite's tests of shared memory",
        False,
        features.check_addresses,
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
