"""Runs one call on the CPU and on a device and compares the results."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from .host import HostCopies

__all__ = ["DEVICE", "Comparison", "Outcome", "run_trial"]

#: Not the current device, so that an operator that uses the current device by mistake fails.
DEVICE = "sim:1"
_SEED = 20
#: Relative and absolute tolerance for a kernel that sums in another order, in half precision.
_LOOSE_TOLERANCE = (0.07, 0.003)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call.

    Args:
        verdict: ``agrees``, ``differs``, ``unsupported`` (the CPU raises), or ``unimplemented``
            (the device raises NotImplementedError).
        detail: The error message or the difference.
    """

    verdict: str
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    """The properties to compare in addition to devices, shapes and dtypes.

    Args:
        values: Whether to compare values; False for uninitialized memory.
        same_kernel: Whether to compare strides, and values with the default tolerance.
    """

    values: bool = True
    same_kernel: bool = True


def run_trial(
    function: Callable[..., Any], sample: Any, comparison: Comparison, *, gradients: bool
) -> Outcome:
    """Call ``function`` on both; compare results, gradients and the arguments after the call."""
    device_call = tree_map(_without_base, [sample.input, sample.args, sample.kwargs])
    host_call = HostCopies().copy(device_call)
    try:
        expected = _run(function, host_call, gradients)
    except Exception as error:
        return Outcome("unsupported", f"{type(error).__name__}: {error}")
    try:
        device = _device_of_results(device_call)
        actual = _run(function, device_call, gradients)
        _check_device(device, actual[0])
        _compare(expected, actual, comparison)
    except NotImplementedError as error:
        return Outcome("unimplemented", str(error).split("\n")[0])
    except Exception as error:
        return Outcome("differs", f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Outcome("agrees")


def _without_base(leaf: Any) -> Any:
    # Some samples are views that require gradients but get none, because their base does not.
    if isinstance(leaf, Tensor) and leaf.requires_grad and leaf._is_view():
        return leaf.detach().requires_grad_()
    return leaf


def _run(function: Callable[..., Any], call: list[Any], gradients: bool) -> list[Any]:
    torch.manual_seed(_SEED)
    first, args, kwargs = call
    leaves = [leaf for leaf in _tensors(call) if leaf.requires_grad and leaf.is_leaf]
    result = function(first, *args, **kwargs)
    return [result, _gradients(result, leaves) if gradients else (), call]


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _gradients(result: Any, leaves: list[Tensor]) -> Any:
    results = [leaf for leaf in _tensors(result) if leaf.requires_grad]
    if not results or not leaves:
        return ()
    output_grads = [_output_grad(leaf) for leaf in results]
    return torch.autograd.grad(results, leaves, output_grads, allow_unused=True)


def _output_grad(tensor: Tensor) -> Tensor:
    """Return a gradient for backward with different values and both signs."""
    plain = tensor.detach()
    if plain.layout != torch.strided:
        return torch.ones_like(plain)
    ramp = torch.linspace(-1, 2, plain.numel(), dtype=torch.float64).reshape(plain.shape)
    return ramp.to(plain.dtype).to(plain.device)


def _device_of_results(call: list[Any]) -> str:
    """Return the device of the keyword argument, or else that of other arguments."""
    kwargs = call[2]
    if kwargs.get("device") is not None:
        return str(torch.device(kwargs["device"]))
    devices = {
        str(getattr(leaf, "device", leaf))
        for leaf in tree_leaves(call)
        if isinstance(leaf, (Tensor, torch.device, str))
    }
    return DEVICE if DEVICE in devices else "cpu"


def _check_device(device: str, results: Any) -> None:
    # Checks only results: gradients and arguments may also be on the CPU.
    for result in _tensors(results):
        assert str(result.device) == device, f"on {result.device}"


def _compare(expected: Any, actual: Any, comparison: Comparison) -> None:
    left, right = tree_leaves(expected), tree_leaves(actual)
    assert len(left) == len(right), f"{len(right)} results, not {len(left)}"
    for want, got in zip(left, right, strict=True):
        if isinstance(want, Tensor):
            _compare_tensors(want, got, comparison)
        elif not isinstance(want, torch.device):
            assert want == got or _is_nan(want, got), f"{got!r}, not {want!r}"


def _is_nan(want: Any, got: Any) -> bool:
    return isinstance(want, float) and math.isnan(want) and math.isnan(got)


def _compare_tensors(want: Tensor, got: Tensor, comparison: Comparison) -> None:
    assert isinstance(got, Tensor), f"{got!r}, not a tensor"
    for name in ("shape", "dtype", "layout", "requires_grad"):
        assert getattr(want, name) == getattr(got, name), f"{name} {getattr(got, name)}"
    if want.layout == torch.strided and comparison.same_kernel:
        assert want.stride() == got.stride(), f"strides {got.stride()}, not {want.stride()}"
        assert (want.is_conj(), want.is_neg()) == (got.is_conj(), got.is_neg()), "lazy bits"
    if comparison.values:
        rtol, atol = (None, None) if comparison.same_kernel else _LOOSE_TOLERANCE
        torch.testing.assert_close(
            got.detach().cpu(), want.detach(), rtol=rtol, atol=atol, equal_nan=True
        )
