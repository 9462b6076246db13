"""Read runs of the benchmarks as ``pytest --benchmark-json`` saves them."""

from pathlib import Path
from typing import Any

from spec_tests.harness import input_files

__all__ = ["TIMES", "load"]

_MACHINE = {
    "cpu": {"brand_raw?": str, "count?": (int, None)},
    "target?": str,
    "python_version": str,
    "torch": str,
    "devices": [str],
    "threads?": int,
    "gpu?": str,
    "cuda?": (str, None),
}
#: The shape of the times and the memory of one library in one benchmark.
TIMES = {
    "group": str,
    "extra_info": {
        "library": str,
        "devices?": [str],
        "pairs?": dict.fromkeys(("q1", "median", "q3"), float),
        "peak_bytes?": (float, None),
    },
    "stats": {**dict.fromkeys(("q1", "median", "q3"), float), "rounds": int},
}
_SHAPE = {
    "datetime": str,
    "commit_info": {"id": str, "dirty?": bool},
    "machine_info": _MACHINE,
    "benchmarks": [{"fullname": str, **TIMES}],
}


def load(path: Path) -> dict[str, Any]:
    """Return a run; see `ratios` and `speed` for its contents.

    Raises:
        input_files.RefusedError: The file cannot be read, or pytest-benchmark has not written it.
    """
    run = input_files.parse_json(input_files.read_text(path), str(path))
    input_files.check(run, _SHAPE, f"{path} was not written by pytest --benchmark-json")
    return run  # type: ignore[no-any-return] # the shape is a table
