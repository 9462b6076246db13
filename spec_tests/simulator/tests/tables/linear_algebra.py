"""Matrix products, decompositions and Fourier transforms."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from .inputs import OperatorCase, booleans, complex_normal, normal

__all__ = ["LINEAR_ALGEBRA"]

SQUARE = normal(4, 4)


def _apply_to_positive_definite(function: Callable[..., object]) -> Callable[..., object]:
    return lambda x: function(x @ x.mT + torch.eye(4, device=x.device))


def _make_symmetric(x: Tensor) -> Tensor:
    return x + x.mT


LINEAR_ALGEBRA: dict[str, OperatorCase] = {
    "mm": (torch.mm, (normal(3, 4), normal(4, 5))),
    "mm of transposed": (lambda x, y: x.t() @ y, (normal(4, 3), normal(4, 5))),
    "mm of conjugated": (lambda x, y: x.mH @ y, (complex_normal(4, 3), complex_normal(4, 5))),
    "mv": (torch.mv, (normal(3, 4), normal(4))),
    "dot": (torch.dot, (normal(4), normal(4))),
    "vdot": (torch.vdot, (complex_normal(4), complex_normal(4))),
    "bmm": (torch.bmm, (normal(2, 3, 4), normal(2, 4, 5))),
    "matmul": (torch.matmul, (normal(2, 1, 3, 4), normal(5, 4, 2))),
    "addmm": (torch.addmm, (normal(5), normal(3, 4), normal(4, 5))),
    "addmv": (torch.addmv, (normal(3), normal(3, 4), normal(4))),
    "addr": (torch.addr, (normal(3, 4), normal(3), normal(4))),
    "addbmm": (torch.addbmm, (normal(3, 5), normal(2, 3, 4), normal(2, 4, 5))),
    "baddbmm": (torch.baddbmm, (normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5))),
    "outer": (torch.outer, (normal(3), normal(4))),
    "inner": (torch.inner, (normal(3, 4), normal(2, 4))),
    "tensordot": (lambda x, y: torch.tensordot(x, y, 1), (normal(2, 3), normal(3, 4))),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->ik", x, y), (normal(2, 3, 4), normal(2, 4, 5))),
    "chain_matmul": (
        lambda *xs: torch.linalg.multi_dot(xs),
        (normal(2, 3), normal(3, 4), normal(4, 5)),
    ),
    "kron": (torch.kron, (normal(2, 3), normal(2, 2))),
    "cross": (lambda x, y: torch.cross(x, y, dim=1), (normal(2, 3), normal(2, 3))),
    "linear": (functional.linear, (normal(2, 3), normal(4, 3), normal(4))),
    "bilinear": (functional.bilinear, (normal(2, 3), normal(2, 4), normal(5, 3, 4), normal(5))),
    "trace": (torch.trace, (SQUARE,)),
    "det": (torch.det, (SQUARE,)),
    "slogdet": (lambda x: tuple(torch.linalg.slogdet(x)), (SQUARE,)),
    "inverse": (torch.linalg.inv, (SQUARE,)),
    "pinv": (torch.linalg.pinv, (normal(4, 3),)),
    "solve": (torch.linalg.solve, (SQUARE, normal(4, 2))),
    "lstsq": (lambda x, y: torch.linalg.lstsq(x, y).solution, (normal(5, 3), normal(5, 2))),
    "cholesky": (_apply_to_positive_definite(torch.linalg.cholesky), (SQUARE,)),
    "cholesky_solve": (
        lambda x, y: torch.cholesky_solve(y, torch.linalg.cholesky(x @ x.mT + 1)),
        (SQUARE, normal(4, 2)),
    ),
    "qr": (lambda x: tuple(torch.linalg.qr(x)), (normal(4, 3),)),
    "svdvals": (torch.linalg.svdvals, (normal(4, 3),)),
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(_make_symmetric(x)), (SQUARE,)),
    "eigvals": (lambda x: torch.linalg.eigvals(x).abs().sort()[0], (SQUARE,)),
    "lu": (lambda x: tuple(torch.linalg.lu(x)), (SQUARE,)),
    "lu_solve": (
        lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), y),
        (SQUARE, SQUARE),
    ),
    "lu_solve of complex": (
        lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), y, left=False),
        (complex_normal(4, 4), complex_normal(2, 4)),
    ),
    "triangular_solve": (
        lambda x, y: torch.linalg.solve_triangular(x.triu() + 3, y, upper=True),
        (SQUARE, normal(4, 2)),
    ),
    "matrix_exp": (torch.linalg.matrix_exp, (SQUARE,)),
    "matrix_power": (lambda x: torch.linalg.matrix_power(x, 3), (SQUARE,)),
    "matrix_norm": (torch.linalg.matrix_norm, (SQUARE,)),
    "matrix_rank": (torch.linalg.matrix_rank, (SQUARE,)),
    "fft": (torch.fft.fft, (complex_normal(3, 8),)),
    "rfft": (torch.fft.rfft, (normal(3, 8),)),
    "irfft": (torch.fft.irfft, (complex_normal(3, 5),)),
    "fft2": (torch.fft.fft2, (normal(4, 8),)),
    "fftshift": (torch.fft.fftshift, (normal(8),)),
    "stft": (
        lambda x, w: torch.stft(x, 8, window=w, return_complex=True),
        (normal(2, 40), normal(8)),
    ),
    "attention": (
        functional.scaled_dot_product_attention,
        (normal(2, 3, 5, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 8)),
    ),
    "causal attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        (normal(2, 3, 5, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 8)),
    ),
    "masked attention": (
        lambda q, k, v, m: functional.scaled_dot_product_attention(
            q, k, v, m | torch.eye(5, 6, device=m.device).bool()
        ),
        (normal(2, 3, 5, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 8), booleans(5, 6)),
    ),
}
