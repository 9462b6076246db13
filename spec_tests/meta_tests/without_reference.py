"""A plugin of pytest: whoever calls torch.nn.parallel fails, as if PyTorch had removed it."""

import sys
from typing import Any

import pytest
import torch

PARTS = ("_functions", "comm", "data_parallel", "parallel_apply", "replicate", "scatter_gather")
TEXT = "torch.nn.parallel was used"


class Removed:
    """Stands for a function or a class that is no more."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse."""
        raise AssertionError(TEXT)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(TEXT)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take everything away that a caller could use."""
    for part in PARTS:
        module = sys.modules[f"torch.nn.parallel.{part}"]
        for name in [name for name in vars(module) if not name.startswith("__")]:
            setattr(module, name, Removed())
    for name in ("DataParallel", "data_parallel", "gather", "parallel_apply", "replicate"):
        setattr(torch.nn.parallel, name, Removed())
