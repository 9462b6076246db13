"""A pytest plugin that removes the functions of torch.nn.parallel after the collection."""

import sys

import pytest

SUBMODULES = (
    "_functions",
    "comm",
    "data_parallel",
    "parallel_apply",
    "replicate",
    "scatter_gather",
)
ERROR_TEXT = "'NoneType' object is not callable"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Replace every function and class by None, whose call raises a TypeError."""
    package = sys.modules["torch.nn.parallel"]
    for module in [sys.modules[f"torch.nn.parallel.{name}"] for name in SUBMODULES]:
        for name in [name for name in vars(module) if not name.startswith("__")]:
            setattr(module, name, None)
    for name in ("DataParallel", "data_parallel", "gather", "parallel_apply", "replicate"):
        setattr(package, name, None)
