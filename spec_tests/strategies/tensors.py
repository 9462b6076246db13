"""Descriptions of tensors of every dtype, shape, memory layout and device; of sparse tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.machine.capabilities import dtype_name, offered, offers, require
from spec_tests.machine.devices import Topology

CPU = torch.device("cpu")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
#: Memory layouts. An "offset" tensor skips the first elements of its storage. An "expanded" tensor
#: has stride 0 in its first dimension. A "negated" tensor has the negative bit, like the
#: imaginary part of a conjugated tensor: its memory holds the negative elements.
LAYOUTS = ("contiguous", "transposed", "strided", "offset", "expanded", "channels_last", "negated")
#: The layouts of complex tensors. A "conjugated" tensor has the conjugate bit; the reference
#: refuses it (divergence CO-1).
COMPLEX_LAYOUTS = (*LAYOUTS, "conjugated")
#: The layouts of tensors that are written. An expanded tensor cannot be written.
WRITABLE = tuple(layout for layout in LAYOUTS if layout != "expanded")
#: For each number of bits: the unsigned dtype.
UNSIGNED = {1: torch.uint8, 8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}
#: The number of the first pattern is drawn below this number.
PATTERNS = 960


@dataclass(frozen=True)
class TensorSpec:
    """A description of a tensor.

    Args:
        shape: The extents; zeros are allowed.
        dtype: The dtype.
        layout: One of `LAYOUTS`; row-major if the shape does not allow the layout.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The number of the device in the topology; None for the CPU.
        bits: The number of the first of the elements' bit patterns, which include negative zero,
            NaN with a payload, infinity, subnormal numbers and integers that float32 rounds; None
            for the elements 0, 1, 2, ..., times ``1 - 2j`` for a complex dtype.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    layout: str = "contiguous"
    requires_grad: bool = False
    slot: int | None = 0
    bits: int | None = None

    def build(self, topology: Topology) -> Tensor:
        """Return a new tensor: the layout's view of a row-major tensor."""
        require(dtype_name(self.dtype))
        source, view = self._code()
        source = f"{source}.to(device)"
        names = {"device": topology.device(self.slot), "torch": torch, "patterned": patterned}
        with CPU:  # A test may have set another default device.
            tensor: Tensor = eval(source + view, names)
        tensor = tensor.detach()
        return tensor.requires_grad_() if self.requires_grad else tensor

    def __repr__(self) -> str:
        source, view = self._code()
        where = "'cpu'" if self.slot is None else f"devices[{self.slot}]"
        grad = ".requires_grad_()" if self.requires_grad else ""
        return f"{source}.to({where}){view}{grad}"

    def _code(self) -> tuple[str, str]:
        """Return the code of a row-major CPU tensor, and the code that makes the layout of it."""
        shape, view = _source_and_view(self.shape, self.layout, self.dtype)
        count = torch.Size(shape).numel()
        if self.bits is not None:
            return f"patterned({tuple(shape)}, {self.dtype}, {self.bits})", view
        numbers = f"torch.arange({count}, dtype={self.dtype})"
        if self.dtype.is_complex or self.dtype == torch.bool:  # arange does not make these.
            factor = ".mul(1 - 2j)" if self.dtype.is_complex else ""
            numbers = f"torch.arange({count}){factor}.to({self.dtype})"
        return numbers if len(shape) == 1 else f"{numbers}.reshape({tuple(shape)})", view


def _pattern(number: int, width: int) -> int:
    """Return an unsigned integer: a power of two, this plus or minus one, or mixed bits."""
    power = (-1 if number // 5 % 2 else 1) * (1 << 5 * number % width) + number % 3 - 1
    return (power if number % 3 else number * 0x9E3779B97F4A7C15) % (1 << width)


def patterned(shape: Sequence[int], dtype: torch.dtype, first: int = 64) -> Tensor:
    """Return a CPU tensor of bit patterns; see `TensorSpec.bits`.

    Args:
        shape: The extents.
        dtype: The dtype.
        first: The number of the first pattern.
    """
    parts = 2 if dtype.is_complex else 1
    width = 1 if dtype == torch.bool else 8 * dtype.itemsize // parts
    count = torch.Size(shape).numel() * parts
    numbers = [_pattern(number, width) for number in range(first, first + count)]
    patterns = torch.tensor(numbers, dtype=UNSIGNED[width], device="cpu")
    return patterns.view(dtype).reshape(tuple(shape))


def counting(
    shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device = CPU
) -> Tensor:
    """Return ``0, 1, 2, ...`` in row-major order, times ``1 - 2j`` for a complex dtype.

    The test is not-run if the devices do not compute in the dtype.
    """
    require(dtype_name(dtype))
    count = torch.arange(torch.Size(shape).numel(), device="cpu").reshape(tuple(shape))
    if dtype.is_complex:
        count = count * (1 - 2j)
    return count.to(dtype).to(device)


def _source_and_view(
    shape: tuple[int, ...], layout: str, dtype: torch.dtype
) -> tuple[Sequence[int], str]:
    """Return the shape of a row-major tensor, and the code after it that makes the layout."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if layout in ("negated", "conjugated") and not offers("conjugate-views"):
        return shape, ""
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
    if layout == "negated" and dtype in (torch.float32, torch.float64):
        return shape, "._neg_view()"
    return shape, ".conj()" if layout == "conjugated" and dtype.is_complex else ""


@st.composite
def shapes(
    draw: st.DrawFn, *, min_dims: int = 1, max_dims: int = 5, max_size: int = 4
) -> tuple[int, ...]:
    """Draw small shapes. Shrinks to ``(1,)`` if ``min_dims`` is 1."""
    # Zero comes last and is rare: empty tensors have no values to compare.
    size = st.sampled_from([*list(range(1, max_size + 1)) * 4, 0])
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
    moved: bool = True,
) -> TensorSpec:
    """Draw descriptions of dense tensors. Shrinks to one float32 element without a gradient.

    Args:
        draw: The draw function of Hypothesis.
        shape: A strategy for shapes; None for `shapes`.
        dtypes: The dtypes to draw from.
        layouts: The layouts to draw from.
        slots: The numbers of devices to draw from; None is the CPU.
        grads: The values to draw ``requires_grad`` from. An integer tensor requires no gradient.
        moved: Whether the elements may be any bits, because no call computes with them or changes
            their dtype.
    """
    dtype = draw(st.sampled_from(offered(dtypes)))
    differentiable = dtype.is_floating_point or dtype.is_complex
    layout = draw(st.sampled_from(layouts))
    return TensorSpec(
        shape=draw(shapes() if shape is None else shape),
        dtype=dtype,
        layout=layout,
        requires_grad=draw(st.sampled_from(grads)) and differentiable,
        slot=draw(st.sampled_from(slots)),
        # A copy of a tensor with the negative bit computes, and CUDA changes the bits of NaN.
        bits=draw(bit_patterns()) if moved and layout != "negated" else None,
    )


def bit_patterns() -> st.SearchStrategy[int | None]:
    """Draw values of `TensorSpec.bits`, nearly always numbers. Shrinks to None."""
    return st.sampled_from([None, *range(PATTERNS)])


def one_or_all(dtypes: Sequence[torch.dtype]) -> st.SearchStrategy[Sequence[torch.dtype]]:
    """Draw one of ``dtypes``, or all: copies between different dtypes need `TensorSpec.bits` None.

    Shrinks to the first of ``dtypes``.
    """
    return st.sampled_from([*([dtype] for dtype in offered(dtypes)), dtypes])


def device_slots(*, min_size: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw numbers of devices in the topology, possibly repeated. Shrinks to number 0."""
    return st.lists(st.integers(0, 3), min_size=min_size, max_size=4).map(tuple)


@dataclass(frozen=True)
class SparseSpec:
    """A description of a sparse COO tensor.

    Args:
        shape: The numbers of rows and columns.
        rows: The row of each stored element; element ``i`` is in column ``i % shape[1]``.
        dtype: The dtype.
        coalesced: Whether the tensor is coalesced.
        requires_grad: Whether the tensor is a leaf that requires a gradient.
        slot: The number of the device in the topology; None for the CPU.
    """

    shape: tuple[int, int] = (3, 2)
    rows: tuple[int, ...] = (0,)
    dtype: torch.dtype = torch.float32
    coalesced: bool = False
    requires_grad: bool = False
    slot: int | None = 0

    def build(self, topology: Topology) -> Tensor:
        """Return a new tensor. Its stored values are 1, 2, 3, ...

        The test is not-run if the devices lack sparse tensors.
        """
        require("sparse")
        columns = [index % self.shape[1] for index in range(len(self.rows))]
        indices = torch.tensor([self.rows, columns], dtype=torch.int64).reshape(2, -1)
        values = torch.arange(1, len(self.rows) + 1).to(self.dtype)
        tensor = torch.sparse_coo_tensor(indices, values, self.shape, check_invariants=True)
        tensor = tensor.coalesce() if self.coalesced else tensor
        return tensor.to(topology.device(self.slot)).requires_grad_(self.requires_grad)

    def __repr__(self) -> str:
        coalesced = ".coalesce()" if self.coalesced else ""
        grad = ".requires_grad_()" if self.requires_grad else ""
        where = "'cpu'" if self.slot is None else f"devices[{self.slot}]"
        columns = [index % self.shape[1] for index in range(len(self.rows))]
        return (
            f"torch.sparse_coo_tensor(torch.tensor([{list(self.rows)}, {columns}]).long(), "
            f"torch.arange(1, {len(self.rows) + 1}), {self.shape}, dtype={self.dtype})"
            f"{coalesced}.to({where}){grad}"
        )


@st.composite
def sparse_specs(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64, torch.int64),
    shape: tuple[int, int] | None = None,
    slots: Sequence[int | None] = (0,),
) -> SparseSpec:
    """Draw descriptions of sparse matrices. Indices may repeat. Shrinks to one stored element."""
    size = st.sampled_from([1, 2, 3])
    shape = draw(st.tuples(size, size)) if shape is None else shape
    count = draw(st.sampled_from([1, 2, 3, 0]))
    rows = draw(st.lists(st.integers(0, shape[0] - 1), min_size=count, max_size=count))
    return SparseSpec(
        shape=shape,
        rows=tuple(rows),
        dtype=draw(st.sampled_from(offered(dtypes))),
        coalesced=draw(st.booleans()),
        slot=draw(st.sampled_from(slots)),
    )
