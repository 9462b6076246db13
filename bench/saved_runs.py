"""Read runs of the benchmarks as ``pytest --benchmark-json`` saves them."""

from pathlib import Path
from typing import Any

from spec_tests.harness import input_files
from spec_tests.harness.shapes import Line, Number

__all__ = ["TIMES", "load"]

_NAME = Line(200)
_SECONDS = Number(1e-12, 1e9)
_RATIO = Number(1e-9, 1e9)
_MACHINE = {
    "cpu": {"brand_raw?": _NAME, "count?": (int, None)},
    "target?": _NAME,
    "python_version": _NAME,
    "torch": _NAME,
    "devices": [str],
    "threads?": int,
    "gpu?": str,
    "cuda?": (str, None),
}
#: The shape of the times and the memory of one library in one benchmark.
TIMES = {
    "group": _NAME,
    "extra_info": {
        "library": _NAME,
        "devices?": [str],
        "pairs?": dict.fromkeys(("q1", "median", "q3"), _RATIO),
        "peak_bytes?": (Number(1, 1e18), None),
        "processor_share?": Number(0, 1),  # Older runs have it.
    },
    "stats": {**dict.fromkeys(("q1", "median", "q3"), _SECONDS), "rounds": int},
}
_SHAPE = {
    "datetime": str,
    "commit_info": {"id": str, "dirty?": bool},
    "machine_info": _MACHINE,
    "benchmarks": [{"fullname": Line(1000), **TIMES}],
}


def load(path: Path) -> dict[str, Any]:
    """Return a run; see `ratios` and `speed` for its contents.

    Raises:
        input_files.RefusedError: The file cannot be read, or pytest-benchmark has not written it.
    """
    run = input_files.parse_json(input_files.read_text(path), str(path))
    input_files.check(run, _SHAPE, f"{path} was not written by pytest --benchmark-json")
    return run  # type: ignore[no-any-return] # the shape is a table
