"""Matrix products, decompositions and Fourier transforms."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from .inputs import OperatorCase, bits, cplx, real

__all__ = ["LINEAR_ALGEBRA"]

SQUARE = real(4, 4)


def _of_positive_definite(function: Callable[..., object]) -> Callable[..., object]:
    return lambda x: function(x @ x.mT + torch.eye(4, device=x.device))


def _symmetric(x: Tensor) -> Tensor:
    return x + x.mT


LINEAR_ALGEBRA: dict[str, OperatorCase] = {
    "mm": (torch.mm, (real(3, 4), real(4, 5))),
    "mm of transposed": (lambda x, y: x.t() @ y, (real(4, 3), real(4, 5))),
    "mm of conjugated": (lambda x, y: x.mH @ y, (cplx(4, 3), cplx(4, 5))),
    "mv": (torch.mv, (real(3, 4), real(4))),
    "dot": (torch.dot, (real(4), real(4))),
    "vdot": (torch.vdot, (cplx(4), cplx(4))),
    "bmm": (torch.bmm, (real(2, 3, 4), real(2, 4, 5))),
    "matmul": (torch.matmul, (real(2, 1, 3, 4), real(5, 4, 2))),
    "addmm": (torch.addmm, (real(5), real(3, 4), real(4, 5))),
    "addmv": (torch.addmv, (real(3), real(3, 4), real(4))),
    "addr": (torch.addr, (real(3, 4), real(3), real(4))),
    "addbmm": (torch.addbmm, (real(3, 5), real(2, 3, 4), real(2, 4, 5))),
    "baddbmm": (torch.baddbmm, (real(2, 3, 5), real(2, 3, 4), real(2, 4, 5))),
    "outer": (torch.outer, (real(3), real(4))),
    "inner": (torch.inner, (real(3, 4), real(2, 4))),
    "tensordot": (lambda x, y: torch.tensordot(x, y, 1), (real(2, 3), real(3, 4))),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->ik", x, y), (real(2, 3, 4), real(2, 4, 5))),
    "chain_matmul": (
        lambda *xs: torch.linalg.multi_dot(xs),
        (real(2, 3), real(3, 4), real(4, 5)),
    ),
    "kron": (torch.kron, (real(2, 3), real(2, 2))),
    "cross": (lambda x, y: torch.cross(x, y, dim=1), (real(2, 3), real(2, 3))),
    "linear": (functional.linear, (real(2, 3), real(4, 3), real(4))),
    "bilinear": (functional.bilinear, (real(2, 3), real(2, 4), real(5, 3, 4), real(5))),
    "trace": (torch.trace, (SQUARE,)),
    "det": (torch.det, (SQUARE,)),
    "slogdet": (lambda x: tuple(torch.linalg.slogdet(x)), (SQUARE,)),
    "inverse": (torch.linalg.inv, (SQUARE,)),
    "pinv": (torch.linalg.pinv, (real(4, 3),)),
    "solve": (torch.linalg.solve, (SQUARE, real(4, 2))),
    "lstsq": (lambda x, y: torch.linalg.lstsq(x, y).solution, (real(5, 3), real(5, 2))),
    "cholesky": (_of_positive_definite(torch.linalg.cholesky), (SQUARE,)),
    "cholesky_solve": (
        lambda x, y: torch.cholesky_solve(y, torch.linalg.cholesky(x @ x.mT + 1)),
        (SQUARE, real(4, 2)),
    ),
    "qr": (lambda x: tuple(torch.linalg.qr(x)), (real(4, 3),)),
    "svdvals": (torch.linalg.svdvals, (real(4, 3),)),
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(_symmetric(x)), (SQUARE,)),
    "eigvals": (lambda x: torch.linalg.eigvals(x).abs().sort()[0], (SQUARE,)),
    "lu": (lambda x: tuple(torch.linalg.lu(x)), (SQUARE,)),
    "lu_solve": (
        lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), y),
        (SQUARE, SQUARE),
    ),
    "lu_solve of complex": (
        lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), y, left=False),
        (cplx(4, 4), cplx(2, 4)),
    ),
    "triangular_solve": (
        lambda x, y: torch.linalg.solve_triangular(x.triu() + 3, y, upper=True),
        (SQUARE, real(4, 2)),
    ),
    "matrix_exp": (torch.linalg.matrix_exp, (SQUARE,)),
    "matrix_power": (lambda x: torch.linalg.matrix_power(x, 3), (SQUARE,)),
    "matrix_norm": (torch.linalg.matrix_norm, (SQUARE,)),
    "matrix_rank": (torch.linalg.matrix_rank, (SQUARE,)),
    "fft": (torch.fft.fft, (cplx(3, 8),)),
    "rfft": (torch.fft.rfft, (real(3, 8),)),
    "irfft": (torch.fft.irfft, (cplx(3, 5),)),
    "fft2": (torch.fft.fft2, (real(4, 8),)),
    "fftshift": (torch.fft.fftshift, (real(8),)),
    "stft": (
        lambda x, w: torch.stft(x, 8, window=w, return_complex=True),
        (real(2, 40), real(8)),
    ),
    "attention": (
        functional.scaled_dot_product_attention,
        (real(2, 3, 5, 8), real(2, 3, 6, 8), real(2, 3, 6, 8)),
    ),
    "causal attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        (real(2, 3, 5, 8), real(2, 3, 5, 8), real(2, 3, 5, 8)),
    ),
    "masked attention": (
        lambda q, k, v, m: functional.scaled_dot_product_attention(
            q, k, v, m | torch.eye(5, 6, device=m.device).bool()
        ),
        (real(2, 3, 5, 8), real(2, 3, 6, 8), real(2, 3, 6, 8), bits(5, 6)),
    ),
}
