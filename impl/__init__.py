"""Data parallelism in one process: a drop-in for ``torch.nn.parallel``, on any accelerator.

Names and signatures are those of ``torch.nn.parallel``; ``Whole`` and ``SplitAlong`` are new.
"""

from . import comm
from ._markers import SplitAlong, Whole
from .data_parallel import DataParallel, data_parallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = [
    "DataParallel",
    "SplitAlong",
    "Whole",
    "comm",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]
