"""Descriptions of dense tensors of every dtype, shape, memory layout and device."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.harness.environment.capabilities import dtype_name, offered, require
from spec_tests.harness.environment.topology import Topology

CPU = torch.device("cpu")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
#: Memory layouts. An "offset" tensor skips the first elements of its storage. An "expanded" tensor
#: has stride 0 in its first dimension.
LAYOUTS = ("contiguous", "transposed", "strided", "offset", "expanded", "channels_last")


@dataclass(frozen=True)
class TensorSpec:
    """A description of a tensor.

    Args:
        shape: The extents; zeros are allowed.
        dtype: The dtype.
        layout: One of `LAYOUTS`; row-major if the shape does not allow the layout.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The number of the device in the topology; None for the CPU.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    layout: str = "contiguous"
    requires_grad: bool = False
    slot: int | None = 0

    def build(self, topology: Topology) -> Tensor:
        """Return a new tensor: the layout's view of a tensor with elements 0, 1, 2, ..."""
        device = topology.device(self.slot)
        shape, view = _source_and_view(self.shape, self.layout)
        source = counting(shape, self.dtype, device)
        # `__repr__` prints this code, too.
        tensor: Tensor = eval(f"source{view}", {"source": source, "torch": torch})
        tensor = tensor.detach()
        return tensor.requires_grad_() if self.requires_grad else tensor

    def __repr__(self) -> str:
        shape, view = _source_and_view(self.shape, self.layout)
        factor = ".mul(1 - 2j)" if self.dtype.is_complex else ""
        numbers = f"torch.arange({torch.Size(shape).numel()}){factor}.reshape({tuple(shape)})"
        where = "'cpu'" if self.slot is None else f"devices[{self.slot}]"
        grad = ".requires_grad_()" if self.requires_grad else ""
        return f"{numbers}.to({where}, {self.dtype}){view}{grad}"


def counting(
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
) -> Tensor:
    """Return ``0, 1, 2, ...`` in row-major order, times ``1 - 2j`` for a complex dtype.

    The test is not-run if the devices do not compute in the dtype.
    """
    require(dtype_name(dtype))
    count = torch.arange(torch.Size(shape).numel(), device="cpu").reshape(tuple(shape))
    if dtype.is_complex:
        count = count * (1 - 2j)
    return count.to(dtype).to(device)


def _source_and_view(shape: tuple[int, ...], layout: str) -> tuple[Sequence[int], str]:
    """Return the shape of a row-major tensor, and the code after it that makes the layout."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if layout == "channels_last" and len(shape) in formats:
        return shape, f".contiguous(memory_format={formats[len(shape)]})"
    if layout == "transposed":
        return shape[::-1], f".permute({tuple(reversed(range(len(shape))))})"
    if layout == "offset":
        return ((shape[0] + 1, *shape[1:]), "[1:]") if shape else ((2,), "[1]")
    if layout == "strided" and shape:
        return (*shape[:-1], 2 * shape[-1]), "[..., ::2]"
    if layout == "expanded" and shape:
        return (1, *shape[1:]), f".expand({shape})"
    return shape, ""


@st.composite
def shapes(
    draw: st.DrawFn, *, min_dims: int = 1, max_dims: int = 5, max_size: int = 4
) -> tuple[int, ...]:
    """Draw small shapes. Shrinks to ``(1,)`` if ``min_dims`` is 1."""
    # Zero comes last, so that failures do not shrink to empty tensors.
    size = st.sampled_from([*range(1, max_size + 1), 0])
    dims = draw(st.integers(min_dims, max_dims))
    return tuple(draw(st.lists(size, min_size=dims, max_size=dims)))


@st.composite
def tensor_specs(
    draw: st.DrawFn,
    *,
    shape: st.SearchStrategy[tuple[int, ...]] | None = None,
    dtypes: Sequence[torch.dtype] = DTYPES,
    layouts: Sequence[str] = LAYOUTS,
    slots: Sequence[int | None] = (0,),
    grads: Sequence[bool] = (False, True),
) -> TensorSpec:
    """Draw descriptions of dense tensors. Shrinks to one float32 element without a gradient.

    Args:
        draw: The draw function of Hypothesis.
        shape: A strategy for shapes; None for `shapes`.
        dtypes: The dtypes to draw from.
        layouts: The layouts to draw from.
        slots: The numbers of devices to draw from; None is the CPU.
        grads: The values to draw ``requires_grad`` from. An integer tensor requires no gradient.
    """
    dtype = draw(st.sampled_from(offered(dtypes)))
    differentiable = dtype.is_floating_point or dtype.is_complex
    return TensorSpec(
        shape=draw(shapes() if shape is None else shape),
        dtype=dtype,
        layout=draw(st.sampled_from(layouts)),
        requires_grad=draw(st.sampled_from(grads)) and differentiable,
        slot=draw(st.sampled_from(slots)),
    )


def device_slots(*, min_size: int = 1, max_size: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw numbers of devices in the topology, possibly repeated. Shrinks to number 0."""
    return st.lists(st.integers(0, 3), min_size=min_size, max_size=max_size).map(tuple)
