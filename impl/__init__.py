"""Data parallelism in one process: a drop-in for ``torch.nn.parallel``, on any accelerator.

This package has the names and signatures of ``torch.nn.parallel``, except
``DistributedDataParallel``. It adds keyword-only arguments; ``DataParallel.hold``,
``DataParallel.map`` and ``DataParallel.call``; ``DataParallelWithLoss`` and ``SyncBatchNorm``;
the markers ``Whole`` and ``SplitAlong``; and ``install``, ``installed`` and ``uninstall``, which
replace ``torch.nn.parallel`` by this package and undo the replacement.
"""

from . import _functions as _functions  # Other packages import this private module.
from . import comm
from ._inputs import SplitAlong, Whole
from .data_parallel import DataParallel, data_parallel
from .extras.batch_norm import SyncBatchNorm
from .extras.install import install, installed, uninstall
from .extras.loss import DataParallelWithLoss
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__version__ = "0.1.0"

__all__ = [
    "DataParallel",
    "DataParallelWithLoss",
    "SplitAlong",
    "SyncBatchNorm",
    "Whole",
    "comm",
    "data_parallel",
    "gather",
    "install",
    "installed",
    "parallel_apply",
    "replicate",
    "scatter",
    "uninstall",
]
