"""Operators on shapes and indices."""

import torch
from torch.nn import functional

from .inputs import OperatorCase, bits, cplx, ints, real

__all__ = ["SHAPES"]

X = real(3, 4)

SHAPES: dict[str, OperatorCase] = {
    "cat": (lambda *xs: torch.cat(xs, 1), (real(3, 2), X)),
    "cat of different dtypes": (lambda x, y: torch.cat([x, y]), (X, ints(5, 2, 4))),
    "stack": (lambda *xs: torch.stack(xs, 1), (X, X)),
    "hstack": (lambda *xs: torch.hstack(xs), (X, X)),
    "split": (lambda x: x.split([1, 3], 1), (X,)),
    "chunk": (lambda x: x.chunk(3), (X,)),
    "unbind": (lambda x: x.unbind(1), (X,)),
    "tensor_split": (lambda x: x.tensor_split(3, 1), (X,)),
    "unsafe_split": (lambda x: x.unsafe_split(2, 1), (X,)),
    "transpose": (lambda x: x.t(), (X,)),
    "permute": (lambda x: x.permute(2, 0, 1), (real(2, 3, 4),)),
    "movedim": (lambda x: x.movedim(0, 2), (real(2, 3, 4),)),
    "reshape": (lambda x: x.t().reshape(2, 6), (X,)),
    "view": (lambda x: x.view(2, 6), (X,)),
    "view as bytes": (lambda x: x.detach().view(torch.uint8), (X,)),
    "flatten": (lambda x: x.flatten(1), (real(2, 3, 4),)),
    "unflatten": (lambda x: x.unflatten(1, (2, 2)), (X,)),
    "squeeze": (lambda x: x.squeeze(1), (real(3, 1),)),
    "expand": (lambda x: x.expand(2, 3, 4), (real(3, 1),)),
    "broadcast_to": (lambda x: x.broadcast_to(2, 3, 4), (X,)),
    "select": (lambda x: x.select(1, 2), (X,)),
    "narrow": (lambda x: x.narrow(1, 1, 2), (X,)),
    "slice by steps": (lambda x: x[::2, 1:], (X,)),
    "diagonal": (lambda x: x.diagonal(1), (X,)),
    "diag": (torch.diag, (real(3),)),
    "diag_embed": (torch.diag_embed, (X,)),
    "as_strided": (lambda x: x.as_strided((2, 3), (2, 1), 1), (X,)),
    "unfold": (lambda x: x.unfold(1, 2, 1), (X,)),
    "repeat": (lambda x: x.repeat(2, 3), (X,)),
    "repeat_interleave": (torch.repeat_interleave, (real(3), ints(3, 3))),
    "tile": (lambda x: x.tile(2, 2), (X,)),
    "roll": (lambda x: x.roll(1, 1), (X,)),
    "flip": (lambda x: x.flip(0, 1), (X,)),
    "rot90": (torch.rot90, (X,)),
    "tril": (torch.tril, (X,)),
    "triu": (lambda x: x.triu(1), (X,)),
    "meshgrid": (lambda *xs: torch.meshgrid(*xs, indexing="ij"), (real(2), real(3))),
    "view_as_complex": (torch.view_as_complex, (real(3, 2),)),
    "conjugated slice": (lambda x: x.conj()[1:], (cplx(3, 4),)),
    "negated view": (lambda x: x.conj().imag, (cplx(3, 4),)),
    "contiguous": (lambda x: x.t().contiguous(), (X,)),
    "clone of channels-last": (
        lambda x: x.to(memory_format=torch.channels_last).clone(),
        (real(2, 3, 4, 5),),
    ),
    "gather": (lambda x, i: x.gather(1, i), (X, ints(4, 3, 2))),
    "scatter": (lambda x, i, y: x.scatter(1, i, y), (X, ints(1, 3, 1), real(3, 1))),
    "scatter_add": (lambda x, i, y: x.scatter_add(1, i, y), (X, ints(4, 3, 4), X)),
    "scatter_reduce": (
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax"),
        (X, ints(4, 3, 4), X),
    ),
    "index_select": (lambda x, i: x.index_select(1, i), (X, ints(4, 5))),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), (X, ints(3, 5), real(5, 4))),
    "index_copy": (lambda x, y: x.index_copy(0, _permutation(x), y), (X, X)),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), (X, ints(3, 2))),
    "index_put": (
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        (X, ints(3, 5), real(5, 4)),
    ),
    "index": (lambda x, i: x[:, i], (X, ints(4, 5))),
    "index by mask": (lambda x, m: x[m], (X, bits(3, 4))),
    "masked_select": (torch.masked_select, (X, bits(3, 4))),
    "masked_scatter": (lambda x, m, y: x.masked_scatter(m, y), (X, bits(3, 4), X)),
    "take": (torch.take, (X, ints(12, 5))),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1), (X, ints(4, 3, 2))),
    "select_scatter": (lambda x, y: x.select_scatter(y, 0, 1), (X, real(4))),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 0, 1), (X, real(2, 4))),
    "put": (lambda x, i, y: x.put(i, y, accumulate=True), (X, ints(12, 5), real(5))),
    "one_hot": (lambda x: functional.one_hot(x, 5), (ints(5, 3),)),
    "pad": (lambda x: functional.pad(x, (1, 2)), (X,)),
    "reflection pad": (lambda x: functional.pad(x, (1, 2), "reflect"), (real(2, 3, 4),)),
    "circular pad": (lambda x: functional.pad(x, (1, 2), "circular"), (real(2, 3, 4),)),
    "combinations": (torch.combinations, (real(4),)),
    "cartesian_prod": (torch.cartesian_prod, (real(2), real(3))),
    "vander": (torch.vander, (ints(5, 3),)),
    "zeros_like": (torch.zeros_like, (X,)),
    "full_like": (lambda x: torch.full_like(x, 3), (X,)),
    "new_ones": (lambda x: x.new_ones(2, 2), (X,)),
}


def _permutation(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([2, 0, 1], device=x.device)
