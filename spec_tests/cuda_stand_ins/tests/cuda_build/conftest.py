"""Skips the tests of this folder without a CUDA build whose devices devices.c answers."""

import os
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests, and say why."""
    if torch.version.cuda is None or "CUDA_BUILD_DEVICES" not in os.environ:
        reason = "not-run: needs a CUDA build and the library of devices.c: tox -e cuda-build"
        for item in items:
            if item.path.parent == HERE:
                item.add_marker(pytest.mark.skip(reason))
