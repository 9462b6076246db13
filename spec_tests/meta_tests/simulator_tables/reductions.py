"""Reductions, scans, sorting and searching."""

import torch

from .inputs import OperatorCase, bits, cplx, ints, pos, real

__all__ = ["REDUCTIONS"]

X = real(3, 4)


def _permutation() -> torch.Tensor:
    return torch.randperm(12).reshape(3, 4).float()


REDUCTIONS: dict[str, OperatorCase] = {
    "sum": (torch.sum, (X,)),
    "sum along": (lambda x: x.sum(1, keepdim=True), (X,)),
    "sum to dtype": (lambda x: x.sum(0, dtype=torch.float64), (X,)),
    "sum of no elements": (torch.sum, (real(0, 3),)),
    "nansum": (torch.nansum, (X,)),
    "mean": (lambda x: x.mean((0, 1)), (X,)),
    "mean along": (lambda x: x.mean(-1), (X,)),
    "prod": (torch.prod, (X,)),
    "prod along": (lambda x: x.prod(1), (X,)),
    "var": (torch.var, (X,)),
    "std along": (lambda x: x.std(0, unbiased=False), (X,)),
    "var_mean": (lambda x: torch.var_mean(x, 1), (X,)),
    "amax": (lambda x: x.amax(1), (_permutation,)),
    "amin": (lambda x: x.amin(0), (_permutation,)),
    # Integers, because aminmax has no gradient before PyTorch 2.12.
    "aminmax": (lambda x: tuple(torch.aminmax(x)), (ints(99, 3, 4),)),
    "max": (torch.max, (_permutation,)),
    "max along": (lambda x: tuple(x.max(1)), (_permutation,)),
    "min along": (lambda x: tuple(x.min(0)), (_permutation,)),
    "argmax": (lambda x: x.argmax(1), (X,)),
    "argmin": (torch.argmin, (X,)),
    "all": (torch.all, (bits(3, 4),)),
    "any along": (lambda x: x.any(1), (bits(3, 4),)),
    "count_nonzero": (torch.count_nonzero, (ints(2, 3, 4),)),
    "norm": (torch.norm, (X,)),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, 3, 1), (X,)),
    "logsumexp": (lambda x: x.logsumexp(1), (X,)),
    "softmax": (lambda x: x.softmax(1), (X,)),
    "log_softmax": (lambda x: x.log_softmax(0), (X,)),
    "cumsum": (lambda x: x.cumsum(1), (X,)),
    "cumprod": (lambda x: x.cumprod(0), (X,)),
    "cummax": (lambda x: tuple(x.cummax(1)), (_permutation,)),
    "cummin": (lambda x: tuple(x.cummin(1)), (_permutation,)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (X,)),
    "sort": (lambda x: tuple(x.sort(1)), (_permutation,)),
    "argsort": (lambda x: x.argsort(1), (_permutation,)),
    "topk": (lambda x: tuple(x.topk(2, 1)), (_permutation,)),
    "kthvalue": (lambda x: tuple(x.kthvalue(2, 1)), (_permutation,)),
    "median": (lambda x: tuple(x.median(1)), (_permutation,)),
    "mode": (lambda x: tuple(x.mode(1)), (ints(3, 3, 4),)),
    "quantile": (lambda x: x.quantile(0.3, 1), (X,)),
    "unique": (lambda x: torch.unique(x, return_inverse=True), (ints(4, 9),)),
    "unique_consecutive": (torch.unique_consecutive, (ints(2, 9),)),
    "bincount": (torch.bincount, (ints(4, 9),)),
    "histc": (lambda x: x.histc(5), (X,)),
    "nonzero": (torch.nonzero, (ints(2, 3, 4),)),
    "searchsorted": (lambda x, y: torch.searchsorted(x.sort()[0], y), (real(6), real(3))),
    "bucketize": (lambda x, y: torch.bucketize(x, y.sort()[0]), (real(3), real(6))),
    "diff": (torch.diff, (X,)),
    "trapezoid": (torch.trapezoid, (X,)),
    "gradient": (torch.gradient, (real(6),)),
    "renorm": (lambda x: x.renorm(2, 0, 1.0), (X,)),
    "cov": (torch.cov, (X,)),
    "corrcoef": (torch.corrcoef, (X,)),
    "cdist": (torch.cdist, (X, real(2, 4))),
    "dist": (torch.dist, (X, real(3, 4))),
    "sum of complex": (torch.sum, (cplx(3, 4),)),
    "mean of complex": (lambda x: x.mean(0), (cplx(3, 4),)),
    "equal": (torch.equal, (X, X)),
    "allclose": (torch.allclose, (X, X)),
    "isin": (torch.isin, (ints(9, 3, 4), ints(4, 3))),
    "logdet": (lambda x: torch.logdet(x @ x.mT + torch.eye(3, device=x.device)), (pos(3, 3),)),
}
