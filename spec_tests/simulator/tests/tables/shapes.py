"""Operators on shapes and indices."""

import torch
from torch.nn import functional

from .inputs import OperatorCase, booleans, complex_normal, integers, normal

__all__ = ["SHAPES"]

X = normal(3, 4)

SHAPES: dict[str, OperatorCase] = {
    "cat": (lambda *xs: torch.cat(xs, 1), (normal(3, 2), X)),
    "cat of different dtypes": (lambda x, y: torch.cat([x, y]), (X, integers(5, 2, 4))),
    "stack": (lambda *xs: torch.stack(xs, 1), (X, X)),
    "hstack": (lambda *xs: torch.hstack(xs), (X, X)),
    "split": (lambda x: x.split([1, 3], 1), (X,)),
    "chunk": (lambda x: x.chunk(3), (X,)),
    "unbind": (lambda x: x.unbind(1), (X,)),
    "tensor_split": (lambda x: x.tensor_split(3, 1), (X,)),
    "unsafe_split": (lambda x: x.unsafe_split(2, 1), (X,)),
    "transpose": (lambda x: x.t(), (X,)),
    "permute": (lambda x: x.permute(2, 0, 1), (normal(2, 3, 4),)),
    "movedim": (lambda x: x.movedim(0, 2), (normal(2, 3, 4),)),
    "reshape": (lambda x: x.t().reshape(2, 6), (X,)),
    "view": (lambda x: x.view(2, 6), (X,)),
    "view as bytes": (lambda x: x.detach().view(torch.uint8), (X,)),
    "flatten": (lambda x: x.flatten(1), (normal(2, 3, 4),)),
    "unflatten": (lambda x: x.unflatten(1, (2, 2)), (X,)),
    "squeeze": (lambda x: x.squeeze(1), (normal(3, 1),)),
    "expand": (lambda x: x.expand(2, 3, 4), (normal(3, 1),)),
    "broadcast_to": (lambda x: x.broadcast_to(2, 3, 4), (X,)),
    "select": (lambda x: x.select(1, 2), (X,)),
    "narrow": (lambda x: x.narrow(1, 1, 2), (X,)),
    "slice by steps": (lambda x: x[::2, 1:], (X,)),
    "diagonal": (lambda x: x.diagonal(1), (X,)),
    "diag": (torch.diag, (normal(3),)),
    "diag_embed": (torch.diag_embed, (X,)),
    "as_strided": (lambda x: x.as_strided((2, 3), (2, 1), 1), (X,)),
    "unfold": (lambda x: x.unfold(1, 2, 1), (X,)),
    "repeat": (lambda x: x.repeat(2, 3), (X,)),
    "repeat_interleave": (torch.repeat_interleave, (normal(3), integers(3, 3))),
    "tile": (lambda x: x.tile(2, 2), (X,)),
    "roll": (lambda x: x.roll(1, 1), (X,)),
    "flip": (lambda x: x.flip(0, 1), (X,)),
    "rot90": (torch.rot90, (X,)),
    "tril": (torch.tril, (X,)),
    "triu": (lambda x: x.triu(1), (X,)),
    "meshgrid": (lambda *xs: torch.meshgrid(*xs, indexing="ij"), (normal(2), normal(3))),
    "view_as_complex": (torch.view_as_complex, (normal(3, 2),)),
    "conjugated slice": (lambda x: x.conj()[1:], (complex_normal(3, 4),)),
    "negated view": (lambda x: x.conj().imag, (complex_normal(3, 4),)),
    "contiguous": (lambda x: x.t().contiguous(), (X,)),
    "clone of channels-last": (
        lambda x: x.to(memory_format=torch.channels_last).clone(),
        (normal(2, 3, 4, 5),),
    ),
    "gather": (lambda x, i: x.gather(1, i), (X, integers(4, 3, 2))),
    "scatter": (lambda x, i, y: x.scatter(1, i, y), (X, integers(1, 3, 1), normal(3, 1))),
    "scatter_add": (lambda x, i, y: x.scatter_add(1, i, y), (X, integers(4, 3, 4), X)),
    "scatter_reduce": (
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax"),
        (X, integers(4, 3, 4), X),
    ),
    "index_select": (lambda x, i: x.index_select(1, i), (X, integers(4, 5))),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), (X, integers(3, 5), normal(5, 4))),
    "index_copy": (lambda x, y: x.index_copy(0, _permutation_on(x.device), y), (X, X)),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), (X, integers(3, 2))),
    "index_put": (
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        (X, integers(3, 5), normal(5, 4)),
    ),
    "index": (lambda x, i: x[:, i], (X, integers(4, 5))),
    "index by mask": (lambda x, m: x[m], (X, booleans(3, 4))),
    "masked_select": (torch.masked_select, (X, booleans(3, 4))),
    "masked_scatter": (lambda x, m, y: x.masked_scatter(m, y), (X, booleans(3, 4), X)),
    "take": (torch.take, (X, integers(12, 5))),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1), (X, integers(4, 3, 2))),
    "select_scatter": (lambda x, y: x.select_scatter(y, 0, 1), (X, normal(4))),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 0, 1), (X, normal(2, 4))),
    "put": (lambda x, i, y: x.put(i, y, accumulate=True), (X, integers(12, 5), normal(5))),
    "one_hot": (lambda x: functional.one_hot(x, 5), (integers(5, 3),)),
    "pad": (lambda x: functional.pad(x, (1, 2)), (X,)),
    "reflection pad": (lambda x: functional.pad(x, (1, 2), "reflect"), (normal(2, 3, 4),)),
    "circular pad": (lambda x: functional.pad(x, (1, 2), "circular"), (normal(2, 3, 4),)),
    "combinations": (torch.combinations, (normal(4),)),
    "cartesian_prod": (torch.cartesian_prod, (normal(2), normal(3))),
    "vander": (torch.vander, (integers(5, 3),)),
    "zeros_like": (torch.zeros_like, (X,)),
    "full_like": (lambda x: torch.full_like(x, 3), (X,)),
    "new_ones": (lambda x: x.new_ones(2, 2), (X,)),
}


def _permutation_on(device: torch.device) -> torch.Tensor:
    return torch.tensor([2, 0, 1], device=device)
