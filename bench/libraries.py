"""What is timed side by side, and the parameter that spreads a benchmark over it."""

from typing import Any

import pytest

#: The libraries by the name that a benchmark's id shows.
LIBRARIES = {"reference": "torch.nn.parallel", "impl": "impl"}


def side_by_side(benchmark: Any) -> Any:
    """Run a benchmark on both libraries, one right after the other."""
    return pytest.mark.parametrize("library", list(LIBRARIES), indirect=True)(benchmark)
