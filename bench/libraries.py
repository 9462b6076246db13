"""The two libraries that the benchmarks compare."""

from typing import Any

import pytest

#: Name of a library in the ids of benchmarks -> its module.
LIBRARIES = {"reference": "torch.nn.parallel", "impl": "impl"}


def for_both_libraries(benchmark: Any) -> Any:
    """Parametrize a benchmark so that it runs for both libraries, one directly after the other."""
    return pytest.mark.parametrize("library", list(LIBRARIES), indirect=True)(benchmark)
