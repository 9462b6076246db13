"""The two libraries that are compared, and the parameter of benchmarks for them."""

from typing import Any

import pytest

#: The libraries by their name in benchmark ids.
LIBRARIES = {"reference": "torch.nn.parallel", "impl": "impl"}


def for_both_libraries(benchmark: Any) -> Any:
    """Parametrize a benchmark over both libraries, one directly after the other."""
    return pytest.mark.parametrize("library", list(LIBRARIES), indirect=True)(benchmark)
