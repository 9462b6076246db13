"""Reductions, scans, sorting and searching."""

import torch

from .inputs import OperatorCase, booleans, complex_normal, integers, normal, positive

__all__ = ["REDUCTIONS"]

X = normal(3, 4)


def _draw_distinct_elements() -> torch.Tensor:
    return torch.randperm(12).reshape(3, 4).float()


REDUCTIONS: dict[str, OperatorCase] = {
    "sum": (torch.sum, (X,)),
    "sum along": (lambda x: x.sum(1, keepdim=True), (X,)),
    "sum to dtype": (lambda x: x.sum(0, dtype=torch.float64), (X,)),
    "sum of no elements": (torch.sum, (normal(0, 3),)),
    "nansum": (torch.nansum, (X,)),
    "mean": (lambda x: x.mean((0, 1)), (X,)),
    "mean along": (lambda x: x.mean(-1), (X,)),
    "prod": (torch.prod, (X,)),
    "prod along": (lambda x: x.prod(1), (X,)),
    "var": (torch.var, (X,)),
    "std along": (lambda x: x.std(0, unbiased=False), (X,)),
    "var_mean": (lambda x: torch.var_mean(x, 1), (X,)),
    "amax": (lambda x: x.amax(1), (_draw_distinct_elements,)),
    "amin": (lambda x: x.amin(0), (_draw_distinct_elements,)),
    # Integers, because aminmax has no gradient before PyTorch 2.12.
    "aminmax": (lambda x: tuple(torch.aminmax(x)), (integers(99, 3, 4),)),
    "max": (torch.max, (_draw_distinct_elements,)),
    "max along": (lambda x: tuple(x.max(1)), (_draw_distinct_elements,)),
    "min along": (lambda x: tuple(x.min(0)), (_draw_distinct_elements,)),
    "argmax": (lambda x: x.argmax(1), (X,)),
    "argmin": (torch.argmin, (X,)),
    "all": (torch.all, (booleans(3, 4),)),
    "any along": (lambda x: x.any(1), (booleans(3, 4),)),
    "count_nonzero": (torch.count_nonzero, (integers(2, 3, 4),)),
    "norm": (torch.norm, (X,)),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, 3, 1), (X,)),
    "logsumexp": (lambda x: x.logsumexp(1), (X,)),
    "softmax": (lambda x: x.softmax(1), (X,)),
    "log_softmax": (lambda x: x.log_softmax(0), (X,)),
    "cumsum": (lambda x: x.cumsum(1), (X,)),
    "cumprod": (lambda x: x.cumprod(0), (X,)),
    "cummax": (lambda x: tuple(x.cummax(1)), (_draw_distinct_elements,)),
    "cummin": (lambda x: tuple(x.cummin(1)), (_draw_distinct_elements,)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (X,)),
    "sort": (lambda x: tuple(x.sort(1)), (_draw_distinct_elements,)),
    "argsort": (lambda x: x.argsort(1), (_draw_distinct_elements,)),
    "topk": (lambda x: tuple(x.topk(2, 1)), (_draw_distinct_elements,)),
    "kthvalue": (lambda x: tuple(x.kthvalue(2, 1)), (_draw_distinct_elements,)),
    "median": (lambda x: tuple(x.median(1)), (_draw_distinct_elements,)),
    "mode": (lambda x: tuple(x.mode(1)), (integers(3, 3, 4),)),
    "quantile": (lambda x: x.quantile(0.3, 1), (X,)),
    "unique": (lambda x: torch.unique(x, return_inverse=True), (integers(4, 9),)),
    "unique_consecutive": (torch.unique_consecutive, (integers(2, 9),)),
    "bincount": (torch.bincount, (integers(4, 9),)),
    "histc": (lambda x: x.histc(5), (X,)),
    "nonzero": (torch.nonzero, (integers(2, 3, 4),)),
    "searchsorted": (lambda x, y: torch.searchsorted(x.sort()[0], y), (normal(6), normal(3))),
    "bucketize": (lambda x, y: torch.bucketize(x, y.sort()[0]), (normal(3), normal(6))),
    "diff": (torch.diff, (X,)),
    "trapezoid": (torch.trapezoid, (X,)),
    "gradient": (torch.gradient, (normal(6),)),
    "renorm": (lambda x: x.renorm(2, 0, 1.0), (X,)),
    "cov": (torch.cov, (X,)),
    "corrcoef": (torch.corrcoef, (X,)),
    "cdist": (torch.cdist, (X, normal(2, 4))),
    "dist": (torch.dist, (X, normal(3, 4))),
    "sum of complex": (torch.sum, (complex_normal(3, 4),)),
    "mean of complex": (lambda x: x.mean(0), (complex_normal(3, 4),)),
    "equal": (torch.equal, (X, X)),
    "allclose": (torch.allclose, (X, X)),
    "isin": (torch.isin, (integers(9, 3, 4), integers(4, 3))),
    "logdet": (
        lambda x: torch.logdet(x @ x.mT + torch.eye(3, device=x.device)),
        (positive(3, 3),),
    ),
}
