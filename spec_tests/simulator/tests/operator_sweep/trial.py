"""Compare one call of an operator on the CPU and on a simulated device."""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

#: The tested device. It is not current, so operators that use the current device by mistake fail.
DEVICE = "sim:1"
_SEED = 20
#: rtol and atol for kernels that sum in another order, also in half precision.
_LOOSE_TOLERANCE = (0.07, 0.003)


@dataclass(frozen=True)
class Trial:
    """One call on the CPU and on the device, and how the two compare.

    Args:
        result: ``agrees``, ``unsupported`` (the CPU raises), ``unimplemented`` (the device
            raises NotImplementedError) or ``differs``.
        detail: The text of the error, or the difference.
    """

    result: str
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    """The properties to compare, besides devices, shapes and dtypes.

    Args:
        values: Whether to compare the values.
        same_kernel: Whether the CPU and the device use the same kernel. Then strides are
            compared, and values are compared with the default tolerance.
    """

    values: bool = True
    same_kernel: bool = True


def compare(
    function: Callable[..., Any], sample: Any, comparison: Comparison, *, with_gradients: bool
) -> Trial:
    """Call ``function`` on the CPU and on ``DEVICE``; return how the two calls compare.

    Results, gradients and changed arguments are compared.
    """
    on_device = tree_map(_detach_view, [sample.input, sample.args, sample.kwargs])
    on_cpu = _copy_to_cpu(on_device)
    try:
        expected = _call(function, on_cpu, with_gradients)
    except Exception as error:
        return Trial("unsupported", f"{type(error).__name__}: {error}")
    try:
        device = _device_of_results(on_device)
        actual = _call(function, on_device, with_gradients)
        _check_device(device, actual[0])
        _compare(expected, actual, comparison)
    except NotImplementedError as error:
        return Trial("unimplemented", str(error).split("\n")[0])
    except Exception as error:
        return Trial("differs", f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Trial("agrees")


def _detach_view(leaf: Any) -> Any:
    # A view that was created under no_grad gets no gradient, even if it requires grad.
    if isinstance(leaf, Tensor) and leaf.requires_grad and leaf._is_view():
        return leaf.detach().requires_grad_()
    return leaf


def _copy_to_cpu(pytree: Any) -> Any:
    """Copy a pytree to the CPU, with the same strides and shared storages.

    The sample inputs are created on the device, and not on the CPU, because some contain CPU
    tensors on every device, such as indices.
    """
    leaves, structure = tree_flatten(pytree)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    file = io.BytesIO()
    torch.save([tensor.detach() for tensor in tensors], file)
    file.seek(0)
    copies = zip(torch.load(file, map_location="cpu"), tensors, strict=True)
    copied = iter([copy.requires_grad_(tensor.requires_grad) for copy, tensor in copies])
    return tree_unflatten(
        [next(copied) if isinstance(leaf, Tensor) else _on_cpu(leaf) for leaf in leaves], structure
    )


def _on_cpu(leaf: Any) -> Any:
    is_device = isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf[:3] == "sim")
    return torch.device("cpu") if is_device else leaf


def _call(function: Callable[..., Any], arguments: list[Any], with_gradients: bool) -> list[Any]:
    torch.manual_seed(_SEED)
    first, args, kwargs = arguments
    leaves = [leaf for leaf in _tensor_leaves(arguments) if leaf.requires_grad and leaf.is_leaf]
    result = function(first, *args, **kwargs)
    return [result, _compute_gradients(result, leaves) if with_gradients else (), arguments]


def _tensor_leaves(pytree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(pytree) if isinstance(leaf, Tensor)]


def _compute_gradients(result: Any, leaves: list[Tensor]) -> Any:
    results = [leaf for leaf in _tensor_leaves(result) if leaf.requires_grad]
    if not results or not leaves:
        return ()
    grad_outputs = [_output_gradient(leaf) for leaf in results]
    return torch.autograd.grad(results, leaves, grad_outputs, allow_unused=True)


def _output_gradient(tensor: Tensor) -> Tensor:
    """Return a gradient for the backward pass with positive and negative values."""
    plain = tensor.detach()
    if plain.layout != torch.strided:
        return torch.ones_like(plain)
    ramp = torch.linspace(-1, 2, plain.numel(), dtype=torch.float64).reshape(plain.shape)
    return ramp.to(plain.dtype).to(plain.device)


def _device_of_results(arguments: list[Any]) -> str:
    """Return the device that the results of the call must be on.

    It is the argument ``device`` if given, else ``DEVICE`` if an argument is on it, else the CPU.
    """
    kwargs = arguments[2]
    if kwargs.get("device") is not None:
        return str(torch.device(kwargs["device"]))
    named = {
        str(getattr(leaf, "device", leaf))
        for leaf in tree_leaves(arguments)
        if isinstance(leaf, (Tensor, torch.device, str))
    }
    return DEVICE if DEVICE in named else "cpu"


def _check_device(device: str, results: Any) -> None:
    # Gradients and changed arguments are not checked: they may be on the CPU.
    for result in _tensor_leaves(results):
        assert str(result.device) == device, f"on {result.device}"


def _compare(expected: Any, actual: Any, comparison: Comparison) -> None:
    wanted, found = tree_leaves(expected), tree_leaves(actual)
    assert len(wanted) == len(found), f"{len(found)} results, not {len(wanted)}"
    for want, got in zip(wanted, found, strict=True):
        if isinstance(want, Tensor):
            _compare_tensors(want, got, comparison)
        elif not isinstance(want, torch.device):
            assert want == got or _are_both_nan(want, got), f"{got!r}, not {want!r}"


def _are_both_nan(expected: Any, actual: Any) -> bool:
    return isinstance(expected, float) and math.isnan(expected) and math.isnan(actual)


def _compare_tensors(expected: Tensor, actual: Tensor, comparison: Comparison) -> None:
    assert isinstance(actual, Tensor), f"{actual!r}, not a tensor"
    for name in ("shape", "dtype", "layout", "requires_grad"):
        assert getattr(expected, name) == getattr(actual, name), f"{name} {getattr(actual, name)}"
    if expected.layout == torch.strided and comparison.same_kernel:
        assert expected.stride() == actual.stride(), (
            f"strides {actual.stride()}, not {expected.stride()}"
        )
        assert (expected.is_conj(), expected.is_neg()) == (actual.is_conj(), actual.is_neg()), (
            "lazy bits"
        )
    if comparison.values:
        rtol, atol = (None, None) if comparison.same_kernel else _LOOSE_TOLERANCE
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), rtol=rtol, atol=atol, equal_nan=True
        )
