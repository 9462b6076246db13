"""A pytest plugin that makes every use of torch.nn.parallel raise an AssertionError."""

import sys
from typing import Any

import pytest
import torch

SUBMODULES = (
    "_functions",
    "comm",
    "data_parallel",
    "parallel_apply",
    "replicate",
    "scatter_gather",
)
ERROR_TEXT = "torch.nn.parallel was used"


class Placeholder:
    """A placeholder for a function or class. Each use of it raises an AssertionError."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an AssertionError."""
        raise AssertionError(ERROR_TEXT)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(ERROR_TEXT)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Replace every function and class of torch.nn.parallel by a placeholder."""
    for submodule in SUBMODULES:
        module = sys.modules[f"torch.nn.parallel.{submodule}"]
        for name in [name for name in vars(module) if not name.startswith("__")]:
            setattr(module, name, Placeholder())
    for name in ("DataParallel", "data_parallel", "gather", "parallel_apply", "replicate"):
        setattr(torch.nn.parallel, name, Placeholder())
